"""How many jobs a worker claims at once: more than one while jobs are quick, the queue is deep and nobody is idle."""

from __future__ import annotations

import math

from convertq.queue.claim import Claim

MAX_JOBS = 8  # complete_and_claim takes no more
#: The time that a batch is expected to take: less than SETTLE_WITHIN_SECONDS, because jobs differ.
EXPECTED_SECONDS = 0.04
#: A queue is deep if so many jobs are left when a worker has claimed its own.
DEEP_QUEUE_JOBS = 32
#: The weight of the newest attempt in the average.
SMOOTHING = 0.2


class BatchSize:
    def __init__(self) -> None:
        self.average_seconds = math.inf  # of an attempt
        self._is_queue_deep = False
        self._size = 1

    def record_attempt(self, seconds: float) -> None:
        if math.isinf(self.average_seconds):
            self.average_seconds = seconds
        self.average_seconds += SMOOTHING * (seconds - self.average_seconds)

    def record_trouble(self) -> None:
        """The gateway failed, or a batch took too long: the next claim is of one job."""
        self._size = 0

    def record_claim(self, claim: Claim) -> None:
        """Most claims do not count what is left: then what the last count has shown is still assumed."""
        if claim.counted_up_to or not claim.jobs:
            self._is_queue_deep = claim.state.left_over >= DEEP_QUEUE_JOBS

    def choose(self, *, is_worker_idle: bool) -> int:
        """It doubles from claim to claim: the largest size takes a few quick jobs."""
        largest = 1
        if self._is_queue_deep and not is_worker_idle and self.average_seconds < EXPECTED_SECONDS:
            largest = min(MAX_JOBS, int(EXPECTED_SECONDS / max(self.average_seconds, EXPECTED_SECONDS / MAX_JOBS)))
        self._size = max(1, min(2 * self._size, largest))
        return self._size
