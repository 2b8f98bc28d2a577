"""How the pool follows the load between the limits of WORKER_CONCURRENCY=A..B.

It grows by one worker at a time while no worker is free and a job could be claimed. It shrinks when fewer workers were
busy for a minute: workers that have no job are retired, so no job is interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from convertq.queue.log.lines import Log
from convertq.queue.pool_size import PoolSize
from convertq.worker.supervisor.worker_pool import WorkerPool

#: A worker that was not needed for this long is retired.
IDLE_SECONDS = 60.0
#: How often the queue is checked while no worker is free: a notification of a new job may go to another host.
CHECK_EVERY_SECONDS = 1.0
#: A job that was found is checked for again before the pool grows: a worker of this host, or of another one that is
#: idle, may be about to claim it. A new worker has this long to connect and claim before the next check.
CHECK_AGAIN_AFTER_SECONDS = 0.1
#: A worker that is not connected by then has trouble, which is checked for at the slower pace.
CONNECTED_WITHIN_SECONDS = 5.0


class PoolElasticity:
    def __init__(self, size: PoolSize, pool: WorkerPool, has_claimable_job: Callable[[], bool], log: Log) -> None:
        self._size, self._pool, self._has_claimable_job, self._log = size, pool, has_claimable_job, log
        self._needed_at = [0.0] * (size.most + 1)  # by n: when n workers were busy at the same time, the last time
        self._check_at = self._grown_at = 0.0
        self._job_was_found = False  # by the last check

    @property
    def next_at(self) -> float:
        """When `keep_up` has something to do, by the monotonic clock."""
        return self._check_at if self._may_grow and not self._has_free_worker else float("inf")

    def keep_up(self) -> None:
        if self._size.is_elastic:
            now = time.monotonic()
            self._record_need(now)
            self._shrink(now)
            self._grow(now)

    def _record_need(self, now: float) -> None:
        for count in range(1, sum(status.busy for status in self._pool.statuses) + 1):
            self._needed_at[count] = now

    def _shrink(self, now: float) -> None:
        """A worker of the highest number that was needed lately stays, and so do all below it."""
        wanted = self._pool.size
        while wanted > self._size.least and now - self._needed_at[wanted] >= IDLE_SECONDS:
            wanted -= 1
        if retired := self._pool.retire(self._pool.size - wanted):
            self._log("shrink", workers=self._pool.size, reason=f"{retired} not needed for {IDLE_SECONDS:g} s")

    @property
    def _may_grow(self) -> bool:
        """A worker that is leaving keeps its slot until it has ended."""
        return len(self._pool.slots) < self._size.most

    @property
    def _has_free_worker(self) -> bool:
        """Also one whose host must not claim: another worker could not either."""
        return any(status.idle or status.held for status in self._pool.statuses)

    def _grow(self, now: float) -> None:
        if not self._may_grow or self._has_free_worker:
            self._job_was_found = False
            return
        if now < self._check_at:
            return
        if not all(status.connected for status in self._pool.statuses):
            is_starting = now < self._grown_at + CONNECTED_WITHIN_SECONDS
            self._check_at = now + (CHECK_AGAIN_AFTER_SECONDS if is_starting else CHECK_EVERY_SECONDS)
            return
        was_found, self._job_was_found = self._job_was_found, self._has_claimable_job()
        self._check_at = now + (CHECK_AGAIN_AFTER_SECONDS if self._job_was_found else CHECK_EVERY_SECONDS)
        if was_found and self._job_was_found:
            self._pool.grow()
            self._grown_at = self._needed_at[self._pool.size] = now
            self._log("grow", workers=self._pool.size, reason="all workers are busy and jobs wait")
