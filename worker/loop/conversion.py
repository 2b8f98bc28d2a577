"""The third and the fourth step: one attempt at a job, from its source to a checked result, under supervision."""

from __future__ import annotations

from convertq.queue.config import Config
from convertq.queue.database.errors import DATABASE_ERRORS, in_plain_words
from convertq.queue.database.reconnecting import ReconnectingDatabase
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import GatewayFailed, GatewaySucceeded, JobEvents
from convertq.queue.job_queue import JobQueue
from convertq.queue.outcome import Completed, Interrupted, Lost, Outcome
from convertq.queue.retry_policy import after_failure
from convertq.queue.store.protocol import PendingResult, Store
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.loop.attempt import Attempt
from convertq.worker.loop.attempt_monitor import AttemptMonitor, Ending
from convertq.worker.loop.monitor_thread import MonitorThread
from convertq.worker.loop.stopping import Stopping


class Conversion:
    def __init__(
        self, config: Config, gateway: GatewayClient, store: Store, database: ReconnectingDatabase,
        stopping: Stopping, monitor_thread: MonitorThread, events: JobEvents,
    ) -> None:  # fmt: skip
        self._config, self._gateway, self._store, self._database = config, gateway, store, database
        self._stopping, self._monitor_thread, self._events = stopping, monitor_thread, events

    def convert(self, job: ClaimedJob) -> Outcome:
        return self.outcome_of(job, self._attempt(job))

    def outcome_of(self, job: ClaimedJob, ending: Completed | Ending) -> Outcome:
        """What has to be recorded of an attempt that ended like this."""
        if isinstance(ending, Interrupted | Lost):
            return ending
        if isinstance(ending, Completed):
            if ending.gateway_ok is not None:
                self._events.emit(GatewaySucceeded(job, ending))
            return ending
        if ending.gateway_ok is not None:
            self._events.emit(GatewayFailed(job, ending))
        return after_failure(ending, job.attempt, self._config)

    def _attempt(self, job: ClaimedJob) -> Completed | Ending:
        if job.mapping not in self._config.mappings_allowed:
            return Failure(Code.GW_4XX, f"the mapping {job.mapping[:60]!r} is not on the allow-list")
        attempt = Attempt(self._gateway, self._store, job)
        monitor = AttemptMonitor(self._config, job, attempt, self._database, self._stopping, self._events)
        if attempt.result.may_have_leftover():
            ending = self._monitor_thread.run(monitor, attempt.check_leftover) or self._remove_leftover(
                job, attempt.result
            )
            if ending is not None:
                return ending
        ending = self._monitor_thread.run(monitor, attempt.convert)
        return ending if ending is not None else Failure(Code.UNKNOWN, "the attempt returned nothing")

    def _remove_leftover(self, job: ClaimedJob, result: PendingResult) -> Failure | None:
        """Removes an unusable result, while the row is locked: without the lease it might be the whole result of
        another holder."""
        try:
            queue = JobQueue(self._database.open(), self._config)
            with queue.database.transaction():
                if queue.lock_lease(job):
                    result.remove_leftover()
        except DATABASE_ERRORS as error:
            if self._database.survives(error):
                return Failure(Code.UNKNOWN, f"a damaged result could not be removed: {in_plain_words(error)}")
            self._database.drop(error)
            return Failure(Code.UNKNOWN, "the database was lost while an unusable result was being removed")
        except OSError as error:
            return Failure(Code.IO_ERROR, f"an unusable result is in the way: {error.strerror}")
        return None
