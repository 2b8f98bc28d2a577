"""A worker: reclaim, claim, process, write, settle, and wait when there is nothing to do."""

from __future__ import annotations

import os
import time
from typing import NoReturn

from convertq.queue.breaker import Breaker
from convertq.queue.claim import Claim, NextClaim
from convertq.queue.config import STUCK_AFTER_SECONDS, Config
from convertq.queue.database.errors import DATABASE_ERRORS
from convertq.queue.database.unreadable_row import UnreadableRow
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import AttemptStarted
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Outcome
from convertq.queue.retry_policy import after_failure
from convertq.queue.signals import Signals
from convertq.queue.store import open_store
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.gateway.route import GatewayRoute
from convertq.worker.job_listeners import job_events
from convertq.worker.loop.attempt_monitor import AttemptMonitor, Ending
from convertq.worker.loop.claiming import Claiming
from convertq.worker.loop.conversion import Conversion
from convertq.worker.loop.maintenance import QueueMaintenance
from convertq.worker.loop.monitor_thread import MonitorThread
from convertq.worker.loop.queue_connection import QueueConnection
from convertq.worker.loop.settling import Settling
from convertq.worker.loop.stopping import HANDLED, Stopping
from convertq.worker.loop.waiting import Waiting
from convertq.worker.loop.worker_slot import WorkerSlot
from convertq.worker.supervisor.status_table import WorkerStatusTable
from convertq.worker.supervisor.wake_up import WakeUp


class Worker:
    def __init__(
        self, config: Config, slot: int, status_table: WorkerStatusTable, wake: WakeUp, route: GatewayRoute
    ) -> None:
        self._config, self._slot = config, WorkerSlot(status_table, slot)
        self._log = Log(config, self._slot.server_id, self._slot.holder)
        self._events, store, breaker = job_events(self._log), open_store(config), Breaker(config, self._log)
        self._stopping = Stopping(Signals(HANDLED), config.worker_shutdown_grace_sec)
        self._gateway = GatewayClient(route)
        self._maintenance = QueueMaintenance(store, self._events, status_table.scans)
        self._connection = QueueConnection(config, self._slot, self._stopping, self._maintenance, self._log)
        self._claiming = Claiming(self._slot, store, wake, self._log, self._events)
        self._conversion = Conversion(
            config, self._gateway, store, self._connection.database, self._stopping,
            MonitorThread(self._stopping, self._exit_from_hung_attempt), self._events,
        )  # fmt: skip
        self._settling = Settling(
            config, self._connection, store, breaker, self._events, self._slot, self._stopping, self._next_claim
        )
        self._waiting = Waiting(config, self._slot, self._connection, breaker, self._gateway, self._stopping, wake)
        self._claimed: Claim | None = None  # by the commit that completed the job before
        self._is_hung = False
        self._is_woken = False  # since the last claim

    def run(self) -> None:
        self._log("worker_start", pid=os.getpid())
        while self._claimed or not (self._stopping or self._is_used_up()):
            try:
                if not self._connect():
                    break
                self._reclaim()
                claim = self._claim()
                self._connection.mark_working()
            except UnreadableRow as error:
                self._fail_unreadable_job(error)
            except DATABASE_ERRORS as error:
                self._connection.drop(error)
            else:
                if claim is None or claim.job is None:
                    self._wait(claim)
                else:
                    outcome = self._process_and_write(claim.job)
                    self._settle(claim.job, outcome)
        self._connection.close()

    def _connect(self) -> bool:
        """Returns False when it is time to stop."""
        if self._connection.is_open:
            return True
        self._claimed = None  # the new connection requeues it, like everything that this worker still leases
        return self._connection.open()

    # -- 1. reclaim --

    def _reclaim(self) -> None:
        claimed = self._claimed.job if self._claimed else None
        self._maintenance.run_if_due(self._connection.queue, self._slot.holder, claimed)

    # -- 2. claim --

    def _claim(self) -> Claim | None:
        """None means that this host must not claim."""
        if self._claimed:
            claim, self._claimed = self._claimed, None
            return claim
        is_woken, self._is_woken = self._is_woken, False
        return self._claiming.claim(self._connection.cursor, is_woken=is_woken)

    def _next_claim(self) -> NextClaim | None:
        """The claim that a completion may take along; None where something else has to follow."""
        if not self._connection.is_open:
            return None  # a new connection first requeues what this worker leases: it must not lease the next job yet
        if self._stopping or self._is_used_up(after_jobs=1):
            return None
        return self._claiming.next_claim(self._connection.cursor)

    def _fail_unreadable_job(self, error: UnreadableRow) -> None:
        """The job was claimed and its row cannot be loaded: the job fails with that reason, and the worker goes on."""
        try:
            leased = JobQueue(self._connection.database.open(), self._config).find_leased_jobs(self._slot.holder)
        except DATABASE_ERRORS as database_error:
            self._connection.drop(database_error)
            return
        for row in leased:
            job = ClaimedJob(row["id"], self._slot.holder, row["attempt"], "", False, 0, False, 0)
            job.lease_ends = time.monotonic() + self._config.worker_lease_ttl_sec
            failure = Failure(Code.UNKNOWN, f"the row of this job cannot be read: {error}")
            self._settle(job, after_failure(failure, job.attempt, self._config))
        if not leased:
            self._connection.drop(error)

    # -- 3. process, 4. write --

    def _process_and_write(self, job: ClaimedJob) -> Outcome:
        """The result is written to a temporary file, which the settlement publishes."""
        self._slot.show_busy(time.monotonic() + self._config.gateway_timeout_ms / 1000 + STUCK_AFTER_SECONDS)
        self._events.emit(AttemptStarted(job))
        return self._conversion.convert(job)

    def _exit_from_hung_attempt(self, monitor: AttemptMonitor, ending: Ending) -> NoReturn:
        """Called by the monitor thread. The first thread hangs, in a disk or a name server: the process ends before it
        returns and finds neither its connection nor its job."""
        self._is_hung = True
        self._settle(monitor.job, self._conversion.outcome_of(monitor.job, ending))
        self._connection.close()
        os._exit(0)

    # -- 5. settle --

    def _settle(self, job: ClaimedJob, outcome: Outcome) -> None:
        settled = self._settling.settle(job, outcome)
        if settled.is_abandoned:
            self._maintenance.expect_abandoned_job()
        if settled.claim is not None and settled.claim.job is not None:
            self._claimed = settled.claim
            self._claiming.announce(settled.claim)
        self._slot.jobs_done += 1
        self._slot.show_ready()

    # -- 6. wait --

    def _wait(self, claim: Claim | None) -> None:
        self._gateway.close_connection()
        self._is_woken = self._waiting.wait(claim)

    def _is_used_up(self, after_jobs: int = 0) -> bool:
        """A worker is replaced after a number of jobs, and when its first thread hangs in an aborted attempt."""
        return self._is_hung or 0 < self._config.worker_max_jobs <= self._slot.jobs_done + after_jobs
