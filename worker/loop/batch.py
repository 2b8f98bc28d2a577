"""A batch: while jobs are quick and the queue is deep, a worker claims several jobs ahead and completes them together.

Each job is still converted by itself. A batch only saves statements and commits: what it has claimed and not begun, or
converted and not completed, waits for a moment.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Container, Iterable
from uuid import UUID

from convertq.queue.completion import FinishedJob
from convertq.queue.job import ClaimedJob

#: After its claim. What is converted by then is completed, and what is not begun goes back to the queue.
SETTLE_WITHIN_SECONDS = 0.05


class Batch:
    """The monitor thread may use it while the first thread is in an attempt, and only then."""

    def __init__(self) -> None:
        self.ahead: deque[ClaimedJob] = deque()  # claimed and not begun
        self.finished: list[FinishedJob] = []  # converted, and not completed in the table
        self.settle_by = self._retry_at = 0.0  # by the monotonic clock

    def add(self, jobs: Iterable[ClaimedJob]) -> None:
        self.ahead.extend(jobs)
        self.settle_by, self._retry_at = time.monotonic() + SETTLE_WITHIN_SECONDS, 0.0

    @property
    def is_late_at(self) -> float:
        """When the monitor thread has to settle what the first thread has not settled by then."""
        return max(self.settle_by, self._retry_at) if self.ahead or self.finished else math.inf

    def postpone(self, seconds: float) -> None:
        """The monitor thread could not settle it, and tries again after this time."""
        self._retry_at = time.monotonic() + seconds

    def take_finished(self) -> list[FinishedJob]:
        taken, self.finished = self.finished, []
        return taken

    def take_ahead(self) -> list[ClaimedJob]:
        taken = list(self.ahead)
        self.ahead.clear()
        return taken

    def drop(self, ids: Container[UUID]) -> list[ClaimedJob]:
        """Removes those of the jobs ahead that are in `ids`, and returns them."""
        dropped = [job for job in self.ahead if job.id in ids]
        for job in dropped:
            self.ahead.remove(job)
        return dropped

    @property
    def ids(self) -> list[UUID]:
        return [*(job.id for job in self.ahead), *(one.job.id for one in self.finished)]
