"""The third and the fourth step: one attempt at a job, from its source to a checked result, under supervision."""

from __future__ import annotations

from collections.abc import Mapping

from convertq.queue.config import Config
from convertq.queue.database.errors import DATABASE_ERRORS, in_plain_words
from convertq.queue.database.reconnecting import ReconnectingDatabase
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import GatewayFailed, GatewaySucceeded, JobEvents
from convertq.queue.job_queue import JobQueue
from convertq.queue.outcome import Cancelled, Completed, Interrupted, Lost, Outcome
from convertq.queue.retry_policy import after_busy_answer, after_failure
from convertq.queue.store.protocol import PendingResult, Store
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.loop.attempt import Attempt
from convertq.worker.loop.attempt_monitor import AttemptMonitor, Ending, ShowBusy
from convertq.worker.loop.cancel_notices import CancelNotices
from convertq.worker.loop.monitor_thread import MonitorThread
from convertq.worker.loop.stopping import Stopping
from convertq.worker.supervisor.call_meter import CallMeter

OTHER_SERVERS_MAPPING = "another server's file has its mapping"


class Conversion:
    def __init__(
        self, config: Config, gateways: Mapping[str, GatewayClient], store: Store, database: ReconnectingDatabase,
        stopping: Stopping, monitor_thread: MonitorThread, events: JobEvents, cancels: CancelNotices,
        show_busy: ShowBusy, meters: Mapping[str, CallMeter],
    ) -> None:  # fmt: skip
        self._config, self._gateways, self._store, self._database = config, gateways, store, database
        self._stopping, self._monitor_thread, self._events, self._cancels = stopping, monitor_thread, events, cancels
        self._show_busy, self._meters = show_busy, meters

    def convert(self, job: ClaimedJob) -> Outcome:
        ending = self._attempt(job)
        self._store.permit_transfers()  # what settles the attempt may need the storage
        return self.outcome_of(job, ending)

    def outcome_of(self, job: ClaimedJob, ending: Completed | Ending) -> Outcome:
        """What has to be recorded of an attempt that ended like this."""
        if isinstance(ending, Interrupted | Lost | Cancelled):
            return ending
        if self._meters:
            self._measure(job, ending)
        if isinstance(ending, Completed):
            if ending.gateway_ok is not None:
                self._events.emit(GatewaySucceeded(job, ending))
            return ending
        if ending.is_busy:
            return after_busy_answer(ending, self._config)
        if ending.gateway_ok is not None:
            self._events.emit(GatewayFailed(job, ending))
        return after_failure(ending, job.attempt, self._config)

    def _measure(self, job: ClaimedJob, ending: Completed | Failure) -> None:
        """For a limit that is adaptive. Any other failure says nothing about how much the gateway can bear."""
        meter = self._meters.get(job.route)
        if meter is None:
            return
        if isinstance(ending, Failure):
            if ending.is_overload:
                meter.record_overload()
        elif ending.gateway_ms is not None:
            meter.record_call(job.bytes, (ending.gateway_ms + 0.5) / 1000)  # whole milliseconds were cut off

    def _attempt(self, job: ClaimedJob) -> Completed | Ending:
        client = self._gateways[job.route]
        if job.mapping not in client.gateway.mappings:
            return self._refuse_mapping(job)
        attempt = Attempt(client, self._store, job)
        monitor = AttemptMonitor(
            self._config, job, attempt, self._database, self._stopping, self._events, self._cancels, self._show_busy
        )
        if attempt.result.may_have_leftover():
            ending = self._monitor_thread.run(monitor, attempt.check_leftover) or self._remove_leftover(
                job, attempt.result
            )
            if ending is not None:
                return ending
        ending = self._monitor_thread.run(monitor, attempt.convert)
        return ending if ending is not None else Failure(Code.UNKNOWN, "the attempt returned nothing")

    def _refuse_mapping(self, job: ClaimedJob) -> Ending:
        """A mapping that another server has declared since is left to that server."""
        if self._config.gateways_file is not None:
            try:
                known = self._database.open().run("list_foreign_mappings", mappings=[])
            except DATABASE_ERRORS as error:
                return Failure(Code.UNKNOWN, f"its mapping could not be looked up: {in_plain_words(error)}")
            if any(row["mapping"] == job.mapping for row in known):
                return Interrupted(OTHER_SERVERS_MAPPING)
        return Failure(Code.GW_4XX, f"the mapping {job.mapping[:60]!r} is not on the allow-list")

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
