"""Beside a blocking attempt: keeps its lease, shows its progress, and ends it when time, lease or grace is over."""

from __future__ import annotations

import time

from convertq.worker.attempt import Attempt, Background
from convertq.worker.config import Config
from convertq.worker.db import PATIENCE
from convertq.worker.errors import Failure
from convertq.worker.job import Job
from convertq.worker.job_queue import JobQueue
from convertq.worker.link import TROUBLE, Link
from convertq.worker.log import Log
from convertq.worker.outcome import Completed, Interrupted, Lost
from convertq.worker.stopping import Stopping

FIRST_REPORT = 2.0  # s: a job that is done by then costs no progress write
REPORT_EVERY = 1.8  # s: shown at least every two
TRY_AGAIN_AFTER = 1.0  # s, when the database did not take a report
LETS_GO = 2.0  # s that an aborted call has to return

Ending = Completed | Failure | Interrupted | Lost | None


class Watcher:
    """For one job: one watcher serves all the steps of its attempt."""

    def __init__(self, config: Config, job: Job, link: Link, stopping: Stopping, log: Log) -> None:
        self._config, self._job, self._link, self._stopping, self._log = config, job, link, stopping, log
        now = time.monotonic()
        self._report_at = now + FIRST_REPORT
        self._extend_at = now + config.worker_lease_extend_sec
        self.left_a_thread_behind = False

    def watch(self, attempt: Attempt, background: Background) -> Ending:
        """What the step under way returned, or why it was ended before that."""
        while True:
            ready = self._stopping.pause(self._time_to_next(attempt), background.done)
            if background.done in ready:
                return background.take_result()
            if ending := self._reason_to_end(attempt):
                attempt.call.abort()
                if background.has_ended(LETS_GO):
                    background.take_result()
                else:
                    self.left_a_thread_behind = True
                return ending
            self._keep(attempt)

    def _reason_to_end(self, attempt: Attempt) -> Failure | Interrupted | Lost | None:
        now = time.monotonic()
        if self._stopping.is_over:
            return Interrupted("shutdown")
        if now >= self._safe_until:
            return Lost("the lease could not be extended in time")
        if attempt.call.ends_at is not None and now >= attempt.call.ends_at:
            return attempt.call.timed_out()
        if self._lease_is_lost:
            return Lost("another holder has the job")
        return None

    _lease_is_lost = False

    @property
    def _safe_until(self) -> float:
        """Some time before the lease ends: what is not stopped by then might run twice."""
        return self._job.lease_ends - min(5.0, self._config.worker_lease_ttl_sec / 6)

    def _time_to_next(self, attempt: Attempt) -> float:
        if self._lease_is_lost:
            return 0
        ends = attempt.call.ends_at or float("inf")
        next_at = min(self._report_at, self._extend_at, self._safe_until, ends)
        return max(0.0, min(next_at - time.monotonic(), self._stopping.time_left))

    def _keep(self, attempt: Attempt) -> None:
        now = time.monotonic()
        if now < min(self._report_at, self._extend_at):
            return
        try:
            held = self._report(attempt) if now >= self._report_at else self._queue().extend_lease(self._job)
        except TROUBLE as error:
            self._link.drop(error)
            self._report_at = self._extend_at = now + TRY_AGAIN_AFTER
            return
        self._link.works()
        self._lease_is_lost = not held
        if held and now >= self._extend_at:
            self._extend_at = now + self._config.worker_lease_extend_sec
            self._log("lease_extended", job_id=self._job.id, status="processing", attempt=self._job.attempt)

    def _report(self, attempt: Attempt) -> bool:
        self._report_at = time.monotonic() + REPORT_EVERY
        shown = attempt.progress
        return self._queue().report_progress(self._job, shown.step, shown.percent, shown.bytes_done, shown.bytes_total)

    def _queue(self) -> JobQueue:
        database = self._link.open()
        database.connection.patience = max(1.0, min(PATIENCE, self._safe_until - time.monotonic()))
        return JobQueue(database, self._config)
