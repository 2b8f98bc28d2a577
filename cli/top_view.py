"""What the person at `convertq top` looks at: the last snapshot, what led there, and what is selected in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from convertq.cli.top_graph import History
from convertq.cli.top_snapshot import Row, Snapshot, Trouble


@dataclass
class View:
    """Everything that the screen depends on."""

    snapshot: Snapshot
    where: str = ""  # the database
    shows: str = "all"
    selected: UUID | None = None
    message: str = ""  # the answer to the last key
    trouble: Trouble | None = None
    helps: bool = False
    minutes: Sequence[Row] = ()  # the last ones, for a frame that has no samples: completed, depth
    queued: History = field(default_factory=History)
    rate: History = field(default_factory=History)

    def see(self, snapshot: Snapshot) -> None:
        """A new state of things. The selected job stays so, wherever it is now; if it left, the next one is."""
        place = self.place
        self.snapshot, self.trouble = snapshot, None
        self.queued.add(snapshot.jobs["queued"])
        self.rate.add(snapshot.rate)
        if place is not None and self.place is None:
            self._select(place)

    @property
    def place(self) -> int | None:
        """Of the selected job in the list of errors."""
        ids = [row["id"] for row in self.snapshot.errors]
        return ids.index(self.selected) if self.selected in ids else None

    def move(self, step: int) -> None:
        place = self.place
        self._select(0 if place is None else max(0, place + step))

    def _select(self, place: int) -> None:
        errors = self.snapshot.errors
        self.selected = errors[min(place, len(errors) - 1)]["id"] if errors else None
