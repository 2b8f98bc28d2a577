"""A worker: reclaim, claim, process, write, settle, and wait when there is nothing to do."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping
from typing import NoReturn

from convertq.queue.breaker import Breaker
from convertq.queue.claim import Claim, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.config import STUCK_AFTER_SECONDS, Config
from convertq.queue.database.database import Database
from convertq.queue.database.errors import DATABASE_ERRORS
from convertq.queue.database.unreadable_row import UnreadableRow
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import AttemptStarted, JobCancelled, LeaseLost
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Cancelled, Completed, Failed, Interrupted, Outcome, RetryLater
from convertq.queue.retry_policy import after_failure
from convertq.queue.route_cursor import RouteCursor
from convertq.queue.settle import ANOTHER_HOLDER
from convertq.queue.signals import Signals
from convertq.queue.status import JobStatus
from convertq.queue.store import open_store
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.gateway.route import GatewayRoute
from convertq.worker.job_listeners import job_events
from convertq.worker.loop.attempt_monitor import AttemptMonitor, Ending
from convertq.worker.loop.batch import Batch
from convertq.worker.loop.batch_size import BatchSize
from convertq.worker.loop.cancel_notices import CancelNotices
from convertq.worker.loop.claiming import Claiming
from convertq.worker.loop.conversion import OTHER_SERVERS_MAPPING, Conversion
from convertq.worker.loop.maintenance import QueueMaintenance
from convertq.worker.loop.monitor_thread import MonitorThread
from convertq.worker.loop.queue_connection import QueueConnection
from convertq.worker.loop.settling import Settled, Settling
from convertq.worker.loop.stopping import HANDLED, Stopping
from convertq.worker.loop.waiting import Waiting
from convertq.worker.loop.worker_slot import WorkerSlot
from convertq.worker.supervisor.status_table import WorkerStatusTable
from convertq.worker.supervisor.wake_up import WakeUp

#: After the monitor thread could not settle a batch.
RETRY_LATE_BATCH_SECONDS = 1.0


class Worker:
    def __init__(
        self, config: Config, slot: int, status_table: WorkerStatusTable, wake: WakeUp,
        routes: Mapping[str, GatewayRoute],
    ) -> None:  # fmt: skip
        self._config, self._slot = config, WorkerSlot(status_table, slot)
        self._log = Log(config, self._slot.server_id, self._slot.holder)
        self._events, store, breaker = job_events(self._log), open_store(config), Breaker(config, self._log)
        self._stopping = Stopping(Signals(HANDLED), config.worker_shutdown_grace_sec)
        self._gateways = {name: GatewayClient(route) for name, route in routes.items()}
        self._batch, self._batch_size, self._cancels = Batch(), BatchSize(), CancelNotices(self._slot)
        self._maintenance = QueueMaintenance(store, self._events, status_table.scans)
        self._connection = QueueConnection(
            config, self._slot, self._stopping, self._maintenance, self._log, self._make_cursor
        )
        self._claiming = Claiming(self._slot, store, wake, self._log, self._events)
        self._conversion = Conversion(
            config, self._gateways, store, self._connection.database, self._stopping,
            MonitorThread(self._stopping, self._batch, self._settle_late_batch, self._exit_from_hung_attempt),
            self._events, self._cancels, self._show_busy, self._slot.meters,
        )  # fmt: skip
        self._settling = Settling(
            config, self._connection, store, breaker, self._events, self._slot, self._stopping, self._next_claim
        )
        self._waiting = Waiting(config, self._slot, self._connection, breaker, self._gateways, self._stopping, wake)
        self._empty_claim: Claim | None = None  # why there is no job; None: this host must not claim
        self._jobs_begun = 0
        self._is_hung = False
        self._is_woken = False  # since the last claim

    def run(self) -> None:
        self._log("worker_start", pid=os.getpid())
        while self._batch.ahead or not (self._stopping or self._is_used_up()):
            try:
                if not self._connect():
                    break
                self._reclaim()
                job = self._claim()
                self._connection.mark_working()
            except UnreadableRow as error:
                self._fail_unreadable_job(error)
            except DATABASE_ERRORS as error:
                self._connection.drop(error)
            else:
                if job is None:
                    self._wait()
                else:
                    outcome = self._process_and_write(job)
                    self._settle(job, outcome)
        self._release_slot()
        self._connection.close()

    def _make_cursor(self, database: Database) -> RouteCursor:
        scans = self._slot.table.scans_by_route
        return RouteCursor(database, self._config, scans, self._waiting.probe, self._close_connection)

    def _close_connection(self, gateway: str) -> None:
        self._gateways[gateway].close_connection()

    def _connect(self) -> bool:
        """Returns False when it is time to stop."""
        if self._connection.is_open:
            return True
        for gateway in self._gateways.values():
            gateway.close_connection()  # the new connection to the database releases the slot of this worker
        self._batch.take_ahead()  # the new connection requeues them, like everything that this worker still leases
        return self._connection.open()

    # -- 1. reclaim --

    def _reclaim(self) -> None:
        if not self._batch.finished:  # a database that is lost here must not lose what is converted
            self._maintenance.run_if_due(self._connection.queue, self._slot.holder, self._batch.ids)

    # -- 2. claim --

    def _claim(self) -> ClaimedJob | None:
        """The next job of the batch, or of a new claim."""
        while True:
            if not self._batch.ahead:
                is_woken, self._is_woken = self._is_woken, False
                self._empty_claim = self._claiming.claim(self._connection.cursor, is_woken=is_woken)
                self._accept(self._empty_claim)
            if not self._batch.ahead:
                return None
            if self._cancels.take_for_ahead():
                self._drop_lost_jobs()
            if self._batch.ahead:
                return self._batch.ahead.popleft()

    def _drop_lost_jobs(self) -> None:
        """Of the jobs that are claimed and not begun, those that were cancelled, or lost in another way."""
        lost = self._connection.queue.find_lost_jobs(self._batch.ahead[0].holder, list(self._batch.ahead))
        for job in self._batch.drop(lost):
            is_cancelled = lost[job.id] == JobStatus.CANCELLED
            self._events.emit(JobCancelled(job) if is_cancelled else LeaseLost(job, ANOTHER_HOLDER))

    def _accept(self, claim: Claim | None) -> None:
        if claim is not None:
            self._batch_size.record_claim(claim)
            self._batch.add(claim.jobs)
            self._claiming.announce(claim)

    def _next_claim(self) -> NextClaim | None:
        """The claim that a completion may take along; None where something else has to follow."""
        if not self._connection.is_open:
            return None  # a new connection first requeues what this worker leases: it must not lease the next job yet
        if self._stopping:
            return None
        if self._batch.ahead and len(self._gateways) > 1:
            return None  # the jobs of a batch are of one gateway
        table = self._slot.table
        size = self._batch_size.choose(is_worker_idle=table.has_idle_worker or table.are_other_hosts_idle)
        wanted = int(min(size, self._jobs_left)) - len(self._batch.ahead)
        return self._claiming.next_claim(self._connection.cursor, wanted) if wanted > 0 else None

    def _fail_unreadable_job(self, error: UnreadableRow) -> None:
        """The job was claimed and its row cannot be loaded: the job fails with that reason, and the worker goes on."""
        try:
            leased = JobQueue(self._connection.database.open(), self._config).find_leased_jobs(self._slot.holder)
        except DATABASE_ERRORS as database_error:
            self._connection.drop(database_error)
            return
        for row in leased:
            job = ClaimedJob(row["id"], self._slot.holder, row["attempt"], "", False, 0, False, 0, run=row["run"])
            job.lease_ends = time.monotonic() + self._config.worker_lease_ttl_sec
            failure = Failure(Code.UNKNOWN, f"the row of this job cannot be read: {error}")
            self._settle(job, after_failure(failure, job.attempt, self._config))
        if not leased:
            self._connection.drop(error)

    # -- 3. process, 4. write --

    def _process_and_write(self, job: ClaimedJob) -> Outcome:
        """The result is written to a temporary file, which the settlement publishes."""
        self._slot.add_begun(job.id, len(self._batch.finished))
        self._show_busy(job)
        self._jobs_begun += 1
        job.begin()
        self._events.emit(AttemptStarted(job))
        outcome = self._conversion.convert(job)
        job.end()
        return outcome

    def _show_busy(self, job: ClaimedJob) -> None:
        """Called again while a transfer from or to the storage goes on, which may take longer than the gateway."""
        timeout_seconds = self._gateways[job.route].timeout_seconds
        self._slot.show_busy(time.monotonic() + timeout_seconds + STUCK_AFTER_SECONDS)

    def _settle_late_batch(self) -> None:
        """Called by the monitor thread, during an attempt that takes longer than the batch was expected to take:
        completes what is finished, and requeues what is not begun."""
        self._batch_size.record_trouble()
        try:
            if self._batch.finished:
                self._settling.complete_once(self._batch.finished)
                self._slot.jobs_done += len(self._batch.take_finished())
                self._slot.begun = self._slot.begun[-1:]  # the job of the attempt that is running
            self._requeue_ahead("the job before it took too long")
        except Failure:  # a result cannot be published: the first thread settles each by itself, after the attempt
            self._batch.postpone(RETRY_LATE_BATCH_SECONDS)
        except DATABASE_ERRORS as error:
            self._drop_if_gone(error)
            self._batch.postpone(RETRY_LATE_BATCH_SECONDS)

    def _exit_from_hung_attempt(self, monitor: AttemptMonitor, ending: Ending) -> NoReturn:
        """Called by the monitor thread. The first thread hangs, in a disk or a name server: the process ends before it
        returns and finds neither its connection nor its job."""
        self._is_hung = True
        self._settle(monitor.job, self._conversion.outcome_of(monitor.job, ending))
        self._connection.close()
        os._exit(0)

    # -- 5. settle --

    def _settle(self, job: ClaimedJob, outcome: Outcome) -> None:
        """A completed job of a batch waits for the others, if that takes only a moment."""
        if isinstance(outcome, Completed):
            self._batch_size.record_attempt(job.duration_seconds)
            self._batch.finished.append(FinishedJob(job, outcome))
            if self._may_wait():
                return
            self._settle_finished()
        else:
            self._settle_finished(claims=False)
            self._end(self._settling.settle(job, outcome), 1)
            if outcome == Interrupted(OTHER_SERVERS_MAPPING) and self._connection.is_open:
                self._connection.cursor.expect_other_mappings()
            if _concerns_other_jobs(outcome):
                self._batch_size.record_trouble()
                self._try_to_requeue_ahead("the job before it could not be converted")
        if self._batch.ahead and self._stopping and self._stopping.has_deadline:
            self._try_to_requeue_ahead("shutdown")

    def _may_wait(self) -> bool:
        """Whether the next job of the batch will probably be converted before this one has to be completed."""
        if not self._batch.ahead or not self._connection.is_open or self._stopping:
            return False
        return time.monotonic() + self._batch_size.average_seconds < self._batch.settle_by

    def _settle_finished(self, *, claims: bool = True) -> None:
        if finished := self._batch.take_finished():
            self._end(self._settling.complete(finished, claims=claims), len(finished))

    def _end(self, settled: Settled, jobs: int) -> None:
        if settled.abandoned:
            self._maintenance.expect_abandoned_jobs(settled.abandoned)
        self._slot.begun = []
        self._slot.jobs_done += jobs
        self._accept(settled.claim)
        if not self._batch.ahead:  # otherwise the next job shows it as busy at once
            self._slot.show_ready()

    def _requeue_ahead(self, reason: str) -> None:
        """If this fails, the next connection or the next maintenance requeues them. Raises one of DATABASE_ERRORS."""
        if ahead := self._batch.take_ahead():
            queue = JobQueue(self._connection.database.open(), self._config)
            self._maintenance.requeue_ahead(queue, ahead[0].holder, reason, kept=self._slot.begun)

    def _try_to_requeue_ahead(self, reason: str) -> None:
        try:
            self._requeue_ahead(reason)
        except DATABASE_ERRORS as error:
            self._drop_if_gone(error)

    def _drop_if_gone(self, error: BaseException) -> None:
        if not self._connection.database.survives(error):
            self._connection.database.drop(error)

    # -- 6. wait --

    def _wait(self) -> None:
        for gateway in self._gateways.values():
            gateway.close_connection()
        self._is_woken = self._waiting.wait(self._empty_claim)

    def _release_slot(self) -> None:
        """Called before this process ends. If it fails, the supervisor releases the slot."""
        if self._connection.is_open:
            with contextlib.suppress(*DATABASE_ERRORS):
                self._connection.cursor.release_slot()

    def _is_used_up(self) -> bool:
        """A worker is replaced after a number of jobs, and when its first thread hangs in an aborted attempt."""
        return self._is_hung or self._jobs_left <= 0

    @property
    def _jobs_left(self) -> float:
        """How many more jobs this worker may begin."""
        return self._config.worker_max_jobs - self._jobs_begun if self._config.worker_max_jobs else math.inf


def _concerns_other_jobs(outcome: Outcome) -> bool:
    """False for a cancel, and for an error of this document alone, such as one that the gateway refuses."""
    if isinstance(outcome, Cancelled):
        return False
    return not (isinstance(outcome, RetryLater | Failed) and outcome.failure.gateway_ok is not False)
