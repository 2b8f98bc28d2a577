"""The monitor of a blocking attempt: it keeps the lease, reports progress, and ends an attempt that must not go on."""

from __future__ import annotations

import time
from collections.abc import Callable

from convertq.queue.config import Config
from convertq.queue.database.connection import ANSWER_TIMEOUT_SECONDS
from convertq.queue.database.errors import DATABASE_ERRORS
from convertq.queue.database.reconnecting import ReconnectingDatabase
from convertq.queue.errors import Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobEvents, LeaseExtended
from convertq.queue.job_queue import JobQueue
from convertq.queue.outcome import Cancelled, Interrupted, Lost
from convertq.queue.status import JobStatus
from convertq.worker.loop.attempt import Attempt
from convertq.worker.loop.cancel_notices import CancelNotices
from convertq.worker.loop.stopping import Stopping

FIRST_REPORT_SECONDS = 2.0  # a shorter job costs no progress write
REPORT_EVERY_SECONDS = 1.8  # pages show progress at least every two seconds
RETRY_REPORT_SECONDS = 1.0  # after the database did not take a report

Ending = Failure | Interrupted | Lost | Cancelled
ShowBusy = Callable[[ClaimedJob], None]


class AttemptMonitor:
    """Belongs to one attempt, with all its steps. Once `ending` is set, the attempt's own result does not count."""

    ending: Ending | None = None
    ended_at = 0.0  # by the monotonic clock

    def __init__(
        self, config: Config, job: ClaimedJob, attempt: Attempt, database: ReconnectingDatabase,
        stopping: Stopping, events: JobEvents, cancels: CancelNotices, show_busy: ShowBusy,
    ) -> None:  # fmt: skip
        """`show_busy` restarts the time after which the supervisor kills this worker as stuck."""
        self._config, self.job, self.attempt = config, job, attempt
        self._database, self._stopping, self._events, self._cancels = database, stopping, events, cancels
        self._show_busy, self._bytes_moved = show_busy, attempt.bytes_moved
        now = time.monotonic()
        self._report_at = now + FIRST_REPORT_SECONDS
        self._extend_at = now + config.worker_lease_extend_sec

    def check(self) -> None:
        """Does what is due: an extension, a report, or the end of the attempt, whose call then returns at once."""
        self.ending = self._reason_to_end()
        if self.ending is None and not self._keep_lease():
            self.ending = self._how_it_was_lost()
        if self.ending:
            self.ended_at = time.monotonic()
            if isinstance(self.ending, Cancelled):
                self.attempt.abort_call()
            else:
                self.attempt.abort()
        elif (moved := self.attempt.bytes_moved) != self._bytes_moved:
            self._bytes_moved = moved
            self._show_busy(self.job)

    def _reason_to_end(self) -> Ending | None:
        now = time.monotonic()
        if self._stopping.is_grace_over:
            return Interrupted("shutdown")
        if now >= self._safe_until:
            return Lost("the lease could not be extended in time")
        if (ends_at := self.attempt.call.ends_at) is not None and now >= ends_at:
            return self.attempt.call.timed_out()
        return None

    @property
    def _safe_until(self) -> float:
        """Some time before the lease ends: an attempt that still ran after the lease could run twice at once."""
        return self.job.lease_ends - min(5.0, self._config.worker_lease_ttl_sec / 6)

    def _keep_lease(self) -> bool:
        """Whether the lease is still this worker's, as far as is known."""
        now = time.monotonic()
        if self._cancels.take_for_attempt():
            self._extend_at = now  # an extension is refused if it was this job
        if now < min(self._report_at, self._extend_at):
            return True
        try:
            is_leased = self._report() if now >= self._report_at else self._queue().extend_lease(self.job)
        except DATABASE_ERRORS as error:
            if not self._database.survives(error):
                self._database.drop(error)
            # The lease is extended before the next report: another session may hold a lock that stops only reports.
            self._extend_at, self._report_at = now + RETRY_REPORT_SECONDS, now + 2 * RETRY_REPORT_SECONDS
            return True
        self._database.mark_working()
        if is_leased and now >= self._extend_at:
            self._extend_at = now + self._config.worker_lease_extend_sec
            self._events.emit(LeaseExtended(self.job))
        return is_leased

    def _how_it_was_lost(self) -> Cancelled | Lost:
        try:
            if self._queue().find_status(self.job) == JobStatus.CANCELLED:
                return Cancelled()
        except DATABASE_ERRORS as error:
            if not self._database.survives(error):
                self._database.drop(error)
        return Lost("another holder has the job")

    def _report(self) -> bool:
        """A report extends the lease too."""
        self._report_at = time.monotonic() + REPORT_EVERY_SECONDS
        progress = self.attempt.progress
        return self._queue().report_progress(
            self.job, progress.step, progress.percent, progress.bytes_done, progress.bytes_total
        )

    def _queue(self) -> JobQueue:
        database = self._database.open()
        seconds_left = self._safe_until - time.monotonic()
        database.connection.answer_timeout_seconds = max(1.0, min(ANSWER_TIMEOUT_SECONDS, seconds_left))
        return JobQueue(database, self._config)
