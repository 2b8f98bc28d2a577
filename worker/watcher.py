"""Looks after a blocking attempt: keeps its lease, shows its progress, ends it when time, lease or grace is over."""

from __future__ import annotations

import time

from convertq.worker.attempt import Attempt
from convertq.worker.config import Config
from convertq.worker.db import PATIENCE
from convertq.worker.errors import Failure
from convertq.worker.job import Job
from convertq.worker.job_queue import JobQueue
from convertq.worker.link import TROUBLE, Link
from convertq.worker.log import Log
from convertq.worker.outcome import Interrupted, Lost
from convertq.worker.stopping import Stopping

FIRST_REPORT = 2.0  # s: a job that is done by then costs no progress write
REPORT_EVERY = 1.8  # s: shown at least every two
TRY_AGAIN_AFTER = 1.0  # s, when the database did not take a report

Ending = Failure | Interrupted | Lost


class Watcher:
    """Of one attempt, for all its steps. `ending` is why it was ended; until then, whatever came of it counts."""

    ending: Ending | None = None
    ended_at = 0.0  # by the monotonic clock

    def __init__(self, config: Config, job: Job, attempt: Attempt, link: Link, stopping: Stopping, log: Log) -> None:
        self._config, self.job, self.attempt = config, job, attempt
        self._link, self._stopping, self._log = link, stopping, log
        now = time.monotonic()
        self._report_at = now + FIRST_REPORT
        self._extend_at = now + config.worker_lease_extend_sec

    def look(self) -> None:
        """Does what is due: an extension, a report, or the end of the attempt, whose call then returns at once."""
        self.ending = self._reason_to_end()
        if self.ending is None and not self._keep():
            self.ending = Lost("another holder has the job")
        if self.ending:
            self.ended_at = time.monotonic()
            self.attempt.call.abort()

    def _reason_to_end(self) -> Ending | None:
        now = time.monotonic()
        if self._stopping.is_over:
            return Interrupted("shutdown")
        if now >= self._safe_until:
            return Lost("the lease could not be extended in time")
        if (ends_at := self.attempt.call.ends_at) is not None and now >= ends_at:
            return self.attempt.call.timed_out()
        return None

    @property
    def _safe_until(self) -> float:
        """Some time before the lease ends: what is not stopped by then might run twice."""
        return self.job.lease_ends - min(5.0, self._config.worker_lease_ttl_sec / 6)

    def _keep(self) -> bool:
        """Whether the lease is still this worker's, as far as is known."""
        now = time.monotonic()
        if now < min(self._report_at, self._extend_at):
            return True
        try:
            held = self._report() if now >= self._report_at else self._queue().extend_lease(self.job)
        except TROUBLE as error:
            self._link.drop(error)
            self._report_at = self._extend_at = now + TRY_AGAIN_AFTER
            return True
        self._link.works()
        if held and now >= self._extend_at:
            self._extend_at = now + self._config.worker_lease_extend_sec
            self._log("lease_extended", job_id=self.job.id, status="processing", attempt=self.job.attempt)
        return held

    def _report(self) -> bool:
        self._report_at = time.monotonic() + REPORT_EVERY
        shown = self.attempt.progress
        return self._queue().report_progress(self.job, shown.step, shown.percent, shown.bytes_done, shown.bytes_total)

    def _queue(self) -> JobQueue:
        database = self._link.open()
        database.connection.patience = max(1.0, min(PATIENCE, self._safe_until - time.monotonic()))
        return JobQueue(database, self._config)
