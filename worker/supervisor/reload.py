"""A reload: every worker that runs is replaced, one at a time, each after its current job."""

from __future__ import annotations

from collections.abc import Sequence

from convertq.worker.supervisor.slot import Slot
from convertq.worker.supervisor.status_table import WorkerStatusTable


class Reload:
    def __init__(self, status_table: WorkerStatusTable) -> None:
        self._status_table = status_table
        self._old_pids: set[int] = set()
        self._retiring_pid = 0

    @property
    def remaining(self) -> int:
        """How many workers are still to be replaced; 0: no reload is under way."""
        return len(self._old_pids)

    @property
    def waits_for_exit(self) -> bool:
        """Whether the next step begins with a SIGCHLD, so that the loop need not poll."""
        return self._retiring_pid in self._old_pids

    def begin(self, slots: Sequence[Slot]) -> None:
        self._old_pids = {slot.pid for slot in slots if slot.pid}

    def cancel(self) -> None:
        self._old_pids.clear()

    def choose(self, slots: Sequence[Slot]) -> Slot | None:
        """Returns the next worker to replace; None while one is retiring or its successor is not connected yet.

        Called between reaping and starting: a pid that has ended must be forgotten before the kernel uses it again.
        """
        self._old_pids &= {slot.pid for slot in slots}
        if self.waits_for_exit or not all(self._status_table.read(slot.number).connected for slot in slots):
            return None
        waiting = [slot for slot in slots if slot.pid in self._old_pids]
        # Idle workers are replaced first.
        chosen = min(waiting, key=lambda slot: self._status_table.read(slot.number).busy, default=None)
        self._retiring_pid = chosen.pid if chosen else 0
        return chosen
