"""The fifth step: recording an outcome, through failed statements and outages, for as long as the lease lasts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from convertq.queue.breaker import Breaker
from convertq.queue.claim import Claim, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.config import STUCK_AFTER_SECONDS, Config
from convertq.queue.database.connection import ANSWER_TIMEOUT_SECONDS
from convertq.queue.database.database import Database
from convertq.queue.database.errors import DATABASE_ERRORS
from convertq.queue.errors import Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobEvents
from convertq.queue.job_queue import JobQueue
from convertq.queue.outcome import Interrupted, Lost, Outcome
from convertq.queue.retry_policy import after_failure
from convertq.queue.settle import Settlement, abandon_job, outcome_if_not_recorded
from convertq.queue.store.protocol import Store
from convertq.worker.loop.queue_connection import QueueConnection
from convertq.worker.loop.stopping import Stopping
from convertq.worker.loop.worker_slot import WorkerSlot
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

#: How long an outcome is tried again whose statement fails. It is never tried beyond the lease.
STATEMENT_RETRY_SECONDS = 60.0
STATEMENT_PAUSE_MAX_SECONDS = 5.0

ChooseNextClaim = Callable[[], NextClaim | None]


class Settled(NamedTuple):
    claim: Claim | None = None  # of the next jobs, made by the same commit
    abandoned: list[UUID] = []  # noqa: RUF012 - jobs whose rows may still name this worker; the list is never changed


class Settling:
    """A result that was converted is kept, and its outcome is tried again, until the lease is over."""

    def __init__(
        self, config: Config, connection: QueueConnection, store: Store, breaker: Breaker, events: JobEvents,
        slot: WorkerSlot, stopping: Stopping, choose_next_claim: ChooseNextClaim,
    ) -> None:  # fmt: skip
        self._config, self._connection, self._store, self._breaker = config, connection, store, breaker
        self._events, self._slot, self._stopping = events, slot, stopping
        self._choose_next_claim = choose_next_claim

    def complete(self, finished: Sequence[FinishedJob], *, claims: bool = True) -> Settled:
        """Completes a batch in one commit. Where that fails, each job is settled by itself."""
        if len(finished) > 1:
            try:
                return Settled(self._complete_together(finished, claims=claims))
            except Failure:
                pass  # one result cannot be published, and the others can
            except DATABASE_ERRORS as error:
                if not self._connection.database.survives(error):
                    self._connection.drop(error)
        settled = [
            self.settle(job, outcome, claims=claims and job is finished[-1].job) for job, outcome in finished
        ]  # fmt: skip
        return Settled(settled[-1].claim, [job_id for one in settled for job_id in one.abandoned])

    def complete_once(self, finished: Sequence[FinishedJob]) -> None:
        """One try, without a claim. Raises Failure, or one of DATABASE_ERRORS."""
        self._complete_together(finished, claims=False)

    def _complete_together(self, finished: Sequence[FinishedJob], *, claims: bool) -> Claim | None:
        settlement = self._settlement(self._connection.database.open())
        claim = settlement.complete(finished, self._choose_next_claim() if claims else None)
        self._connection.database.mark_working()
        return claim

    def settle(self, job: ClaimedJob, outcome: Outcome, *, claims: bool = True) -> Settled:
        self._slot.show_busy(job.lease_ends + STUCK_AFTER_SECONDS)
        had_outage = False
        while True:
            database = self._open(job)
            if database is None or (had_outage and self._is_too_late(job)):
                abandon_job(job, self._store, self._events, "the database did not come back in time")
                return Settled(abandoned=[job.id])
            try:
                recorded = self._record(database, job, outcome, claims=claims)
            except DATABASE_ERRORS as error:
                had_outage = True
                self._connection.drop(error)
                continue
            if isinstance(recorded, Settled):
                return recorded
            outcome = recorded

    def _open(self, job: ClaimedJob) -> Database | None:
        database = self._connection.database.open_with_retries(
            self._stopping.pause, give_up=lambda: self._is_too_late(job)
        )
        if database is not None:
            seconds_left = job.lease_ends - time.monotonic()
            database.connection.answer_timeout_seconds = max(1.0, min(ANSWER_TIMEOUT_SECONDS, seconds_left))
        return database

    def _record(self, database: Database, job: ClaimedJob, outcome: Outcome, *, claims: bool) -> Settled | Outcome:
        """Returns another outcome if that is the one to record. Raises one of DATABASE_ERRORS in an outage."""
        try:
            return self._settle_on(database, job, outcome, claims=claims)
        except Failure as failure:
            return after_failure(failure, job.attempt, self._config)
        except DATABASE_ERRORS as error:
            if not self._connection.database.survives(error):
                raise
        return self._retry_statement(database, job, outcome, claims=claims)

    def _retry_statement(
        self, database: Database, job: ClaimedJob, outcome: Outcome, *, claims: bool
    ) -> Settled | Outcome:
        """Called when a statement has failed although the server is there: another session may hold a lock."""
        is_statement_error = self._connection.database.survives
        retrying = Retrying(
            retry=retry_if_exception(is_statement_error), reraise=True,
            wait=wait_random_exponential(multiplier=0.2, max=STATEMENT_PAUSE_MAX_SECONDS),
            stop=lambda state: stop_after_delay(STATEMENT_RETRY_SECONDS)(state) or self._is_too_late(job),
            sleep=self._stopping.pause, before_sleep=lambda state: self._extend_lease(database, job),
        )  # fmt: skip
        try:
            return retrying(self._settle_on, database, job, outcome, claims=claims)
        except Failure as failure:
            return after_failure(failure, job.attempt, self._config)
        except DATABASE_ERRORS as error:
            if not is_statement_error(error):
                raise
            if self._stopping.is_grace_over and not isinstance(outcome, Interrupted):
                return Interrupted("shutdown")
            return outcome_if_not_recorded(job, outcome, error, self._config)

    def _settle_on(self, database: Database, job: ClaimedJob, outcome: Outcome, *, claims: bool) -> Settled:
        next_claim = self._choose_next_claim() if claims else None
        claim = self._settlement(database).settle(job, outcome, next_claim)
        self._connection.database.mark_working()
        return Settled(claim, [job.id] if isinstance(outcome, Lost) else [])

    def _settlement(self, database: Database) -> Settlement:
        permit = self._slot.permit if self._slot.table.permits.are_needed else None
        return Settlement(JobQueue(database, self._config), self._store, self._breaker, self._events, permit)

    def _extend_lease(self, database: Database, job: ClaimedJob) -> None:
        with contextlib.suppress(*DATABASE_ERRORS):  # the next try to settle shows what is wrong
            JobQueue(database, self._config).extend_lease(job)
        self._slot.show_busy(job.lease_ends + STUCK_AFTER_SECONDS)

    def _is_too_late(self, job: ClaimedJob) -> bool:
        return time.monotonic() >= job.lease_ends or self._stopping.is_grace_over
