"""The notices of cancelled jobs that a worker gets from its supervisor, through shared memory.

A notice names no job and proves nothing: it makes the worker check its leases in the table now, instead of at the next
extension or report.
"""

from __future__ import annotations

from convertq.worker.loop.worker_slot import WorkerSlot


class CancelNotices:
    """Used by the first thread between attempts, and by the monitor thread during one."""

    def __init__(self, slot: WorkerSlot) -> None:
        self._slot, self._seen = slot, slot.cancels
        self._concerns_attempt = self._concerns_ahead = False

    def take_for_attempt(self) -> bool:
        """Whether the job that is being converted has to be checked. A notice that came before its attempt counts: the
        job may have been claimed earlier."""
        self._read()
        is_new, self._concerns_attempt = self._concerns_attempt, False
        return is_new

    def take_for_ahead(self) -> bool:
        """Whether the jobs that are claimed and not begun have to be checked."""
        self._read()
        is_new, self._concerns_ahead = self._concerns_ahead, False
        return is_new

    def _read(self) -> None:
        if (number := self._slot.cancels) != self._seen:
            self._seen, self._concerns_attempt, self._concerns_ahead = number, True, True
