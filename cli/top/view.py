"""What `convertq top` shows: the last snapshot, the samples before it, and the selected job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from convertq.cli.top.graph import History
from convertq.cli.top.snapshot import DatabaseProblem, Row, Snapshot
from convertq.queue.status import JobStatus


@dataclass
class View:
    """Everything that the screen depends on."""

    snapshot: Snapshot
    where: str = ""  # the database
    shows: str = "all"
    selected: UUID | None = None
    message: str = ""  # the effect of the last key
    problem: DatabaseProblem | None = None
    shows_help: bool = False
    minutes: Sequence[Row] = ()  # for a frame that has no samples: completed, depth
    queued: History = field(default_factory=History)
    rate: History = field(default_factory=History)

    def update(self, snapshot: Snapshot) -> None:
        """Takes a new snapshot. The selected job stays selected; if it is gone, the next one in the list is."""
        position = self.position
        self.snapshot, self.problem = snapshot, None
        self.queued.add(snapshot.jobs[JobStatus.QUEUED])
        self.rate.add(snapshot.rate)
        if position is not None and self.position is None:
            self._select(position)

    @property
    def position(self) -> int | None:
        """The index of the selected job in the list of errors."""
        ids = [row["id"] for row in self.snapshot.errors]
        return ids.index(self.selected) if self.selected in ids else None

    def move(self, step: int) -> None:
        position = self.position
        self._select(0 if position is None else max(0, position + step))

    def _select(self, position: int) -> None:
        errors = self.snapshot.errors
        self.selected = errors[min(position, len(errors) - 1)]["id"] if errors else None
