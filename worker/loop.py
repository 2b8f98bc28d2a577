"""A worker's loop: reclaim, claim, convert, write, settle, and wait when there is nothing to do."""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import NoReturn

from convertq.worker.attempt import Attempt
from convertq.worker.board import STUCK_AFTER, Board, Row
from convertq.worker.breaker import Breaker
from convertq.worker.config import Config
from convertq.worker.db import PATIENCE, Database, application_name
from convertq.worker.errors import Code, Failure
from convertq.worker.files import Files, discard
from convertq.worker.gateway_client import GatewayClient
from convertq.worker.gateway_connection import Route
from convertq.worker.hold import reason_to_hold
from convertq.worker.job import Job
from convertq.worker.job_queue import Claimant, Gate, JobQueue
from convertq.worker.link import RETRY_AT_MOST_EVERY, TROUBLE, Link
from convertq.worker.log import Log
from convertq.worker.lookout import Lookout
from convertq.worker.outcome import Completed, Interrupted, Lost, Outcome
from convertq.worker.retry import after_failure
from convertq.worker.returned import say_returned
from convertq.worker.settle import Settlement, let_go
from convertq.worker.signals import Signals
from convertq.worker.stopping import HANDLED, Stopping
from convertq.worker.wake import Wake
from convertq.worker.watcher import Ending, Watcher

RECLAIM_EVERY = 10.0  # s and per worker: at a thousand jobs a second it costs nothing, and little where all are idle
FIRST_PAUSE = 0.1  # s after trouble with the database, doubled while it lasts


class Worker:
    def __init__(self, config: Config, slot: int, board: Board, wake: Wake, route: Route) -> None:
        self._config, self._slot, self._board, self._wake = config, slot, board, wake
        self._log = Log(config, board.server_id, self._holder)
        self._stopping = Stopping(Signals(HANDLED), config.worker_shutdown_grace_sec)
        self._files = Files(config.uploads_dir, config.results_dir)
        self._breaker = Breaker(config, self._log)
        self._link = Link(config.database, self._log, lambda: application_name(self._holder), claims=True)
        self._gateway, self._lookout = GatewayClient(config, route), Lookout(self._stopping, self._abandon)
        self._queue: JobQueue | None = None
        self._next: tuple[Job, Gate] | None = None  # claimed in the commit that completed the job before it
        self._jobs = 0
        self._hung = False
        self._held = ""
        self._held_by_disk = False
        self._let_go = False  # of the last job, whose row may still name this worker
        self._pause = FIRST_PAUSE
        self._reclaim_at = time.monotonic() + random.uniform(0, RECLAIM_EVERY)

    def run(self) -> None:
        self._log("worker_start", pid=os.getpid())
        while self._next or not (self._stopping or self._is_used_up()):
            try:
                queue = self._connected()
                if queue is None:
                    break
                self._reclaim(queue)
                job, gate = self._claim(queue)
                self._all_is_well()
            except TROUBLE as error:
                self._back_off(error)
                continue
            if job is None:
                self._wait_for_work(queue, gate)
                continue
            outcome = self._convert(job)
            self._settle(job, outcome)
        self._link.close()

    @property
    def _holder(self) -> str:
        return f"{self._board.server_id}/{self._slot}"

    def _is_used_up(self, more: int = 0) -> bool:
        """Recycled after so many jobs, or because its first thread hangs in an aborted call."""
        return self._hung or 0 < self._config.worker_max_jobs <= self._jobs + more

    # -- connecting --

    def _connected(self) -> JobQueue | None:
        """A queue to work on; None when it is time to stop."""
        if self._queue is not None and self._link.database is self._queue.database:
            return self._queue
        self._show(connected=False)
        self._next = None  # given back below, like whatever this worker holds in the table
        database = self._link.open_with_patience(self._nap, give_up=lambda: bool(self._stopping))
        if database is None:
            return None
        queue = JobQueue(database, self._config)
        self._give_back_what_was_held(queue)
        self._queue = queue
        self._show()
        return queue

    def _give_back_what_was_held(self, queue: JobQueue) -> None:
        """A predecessor in this slot may have died while the database was down; or this process had to let its job
        go; or its claim was committed and the answer lost: then nothing was begun and the attempt does not count."""
        counted = self._queue is None or self._let_go
        lost = "lease could not be kept" if self._let_go else "connection lost during the claim"
        reason = "worker died" if self._queue is None else lost
        for row in queue.requeue_worker_jobs(self._holder, counted=counted, reason=reason):
            discard(self._files.part(row["id"], row["attempt"], self._holder))
            say_returned(self._log, "requeue", row, reason=reason)

    def _all_is_well(self) -> None:
        self._link.works()
        self._pause, self._let_go = FIRST_PAUSE, False

    def _back_off(self, error: BaseException) -> None:
        """Where connecting works and writing does not (no rights, read-only), only this keeps it from spinning."""
        self._link.drop(error)
        self._nap(self._pause)
        self._pause = min(self._pause * 2, RETRY_AT_MOST_EVERY)

    def _nap(self, seconds: float) -> None:
        self._stopping.pause(seconds)

    # -- 1. reclaim --

    def _reclaim(self, queue: JobQueue) -> None:
        if time.monotonic() < self._reclaim_at:
            return
        self._reclaim_at = time.monotonic() + RECLAIM_EVERY
        for row in queue.reclaim_jobs():
            discard(self._files.part(row["id"], row["attempt"], row["holder"]))
            say_returned(self._log, "reclaim", row, reason=row["reason"], holder=row["holder"])

    # -- 2. claim --

    def _claim(self, queue: JobQueue) -> tuple[Job | None, Gate | None]:
        if self._next:
            claimed, self._next = self._next, None
            return claimed
        held = reason_to_hold(self._config)
        self._held_by_disk = bool(held)
        if held:
            self._hold(held)
            return None, None
        self._log.server, self._log.worker = self._board.server_id, self._holder
        queue.database.connection.patience = PATIENCE
        job, gate = queue.claim_job(self._board.server_id, self._holder)
        self._hold("" if gate.breaker == "closed" else "the breaker is open", breaker=gate.breaker)
        if job is not None:
            self._note_claim(job, gate)
        return job, gate

    def _note_claim(self, job: Job, gate: Gate) -> None:
        self._log(
            "claim", job_id=job.name, status="processing", attempt=job.attempt, queued_ms=job.queued_ms,
            breaker=gate.breaker,
        )  # fmt: skip
        if gate.more_to_claim:
            self._wake.give()

    def _claimant(self) -> Claimant | None:
        """Who may claim along with a completion; None: what follows is not a claim, or not at once."""
        if self._stopping or self._is_used_up(more=1) or reason_to_hold(self._config):
            return None
        return self._board.server_id, self._holder

    def _hold(self, reason: str, **fields: str) -> None:
        """Said once, when it begins or its reason changes."""
        if reason and reason != self._held:
            self._log("held", reason=reason, **fields)
        self._held = reason

    # -- 3, 4. process and write --

    def _convert(self, job: Job) -> Outcome:
        self._show(busy=True, deadline=time.monotonic() + self._config.gateway_timeout_ms / 1000 + STUCK_AFTER)
        self._log("start", job_id=job.name, status="processing", attempt=job.attempt)
        return self._outcome_of(job, self._attempt(job))

    def _outcome_of(self, job: Job, ending: Completed | Ending) -> Outcome:
        if isinstance(ending, Interrupted | Lost):
            return ending
        self._say_call(job, ending)
        return after_failure(ending, job.attempt, self._config) if isinstance(ending, Failure) else ending

    def _attempt(self, job: Job) -> Completed | Ending:
        if job.mapping not in self._config.mappings_allowed:
            return Failure(Code.GW_4XX, f"the mapping {job.mapping[:60]!r} is not on the allow-list")
        attempt = Attempt(self._gateway, self._files, job)
        watcher = Watcher(self._config, job, attempt, self._link, self._stopping, self._log)
        if os.path.lexists(attempt.paths.result):
            ending = self._lookout.watch(watcher, attempt.check_leftover)
            if ending is not None:
                return ending
            try:
                self._remove_leftover(job, attempt.paths.result)
            except TROUBLE as error:
                self._link.drop(error)
                return Failure(Code.UNKNOWN, "the database was lost while a damaged result was being removed")
            except OSError as error:
                return Failure(Code.IO_ERROR, f"a damaged result is in the way: {error.strerror}")
        return self._lookout.watch(watcher, attempt.convert) or Failure(Code.UNKNOWN, "the attempt returned nothing")

    def _abandon(self, watcher: Watcher, ending: Ending) -> NoReturn:
        """On the second thread; the first one hangs, and would find neither connection nor job when it came back."""
        self._hung = True
        self._settle(watcher.job, self._outcome_of(watcher.job, ending))
        self._link.close()
        os._exit(0)

    def _remove_leftover(self, job: Job, result: str) -> None:
        """Only while the row is locked: without the lease it might be another holder's whole result."""
        queue = JobQueue(self._link.open(), self._config)
        with queue.database.transaction():
            if queue.lock_lease(job):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(result)  # noqa: PTH108

    def _say_call(self, job: Job, ending: Completed | Failure) -> None:
        if ending.gateway_ok is None:
            return
        fields: dict[str, int | str | None] = {"gateway_ms": ending.gateway_ms, "gateway_status": ending.gateway_status}
        event = "gateway_ok"
        if isinstance(ending, Failure):
            event = "gateway_error"
            fields |= {"error_code": str(ending.code), "error_message": ending.message}
        self._log(event, job_id=job.name, status="processing", attempt=job.attempt, **fields)

    # -- 5. complete or fail --

    def _settle(self, job: Job, outcome: Outcome) -> None:
        """A result that was converted is kept, and written, for as long as the lease lasts."""
        self._show(busy=True, deadline=job.lease_ends + STUCK_AFTER)
        self._let_go, troubled = isinstance(outcome, Lost), False
        while True:
            database = self._link.open_with_patience(self._nap, give_up=lambda: self._is_too_late(job))
            if database is None or (troubled and self._is_too_late(job)):
                self._let_go = True
                let_go(job, self._files, self._log, "the database did not come back in time")
                break
            database.connection.patience = max(1.0, min(PATIENCE, job.lease_ends - time.monotonic()))
            try:
                self._settle_on(database, job, outcome)
                break
            except Failure as failure:
                outcome = after_failure(failure, job.attempt, self._config)
            except TROUBLE as error:
                troubled = True
                self._back_off(error)
        self._jobs += 1
        self._show()

    def _settle_on(self, database: Database, job: Job, outcome: Outcome) -> None:
        queue, claimant = self._queue, self._claimant()
        if queue is None or queue.database is not database:
            # what this worker holds is given back when it is connected again: it must not hold the next one by then
            queue, claimant = JobQueue(database, self._config), None
        claim = Settlement(queue, self._files, self._breaker, self._log).settle(job, outcome, claimant)
        self._link.works()
        if claim and claim[0] is not None:
            self._next = (claim[0], claim[1])
            self._note_claim(*self._next)

    def _is_too_late(self, job: Job) -> bool:
        return time.monotonic() >= job.lease_ends or self._stopping.is_over

    # -- 6. wait --

    def _wait_for_work(self, queue: JobQueue, gate: Gate | None) -> None:
        self._show()
        self._gateway.gateway.rest()
        if gate is not None and gate.probe_is_due and self._probe(queue):
            return
        poll_at = time.monotonic() + self._config.worker_poll_interval_ms / 1000
        while not self._stopping and time.monotonic() < poll_at:
            self._stopping.pause_with_others(poll_at - time.monotonic(), self._wake.descriptor)
            if self._wake.take():  # else another idle worker was quicker, and this one has nothing to claim
                return

    def _probe(self, queue: JobQueue) -> bool:
        self._show(deadline=time.monotonic() + STUCK_AFTER)
        try:
            return self._breaker.probe(queue.database, self._holder)
        except TROUBLE as error:
            self._link.drop(error)
            return False
        finally:
            self._show()

    def _show(self, *, connected: bool = True, busy: bool = False, deadline: float = 0.0) -> None:
        self._board.write(self._slot, Row(connected, busy, self._held_by_disk, deadline, self._jobs))
