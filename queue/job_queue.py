"""The statements about a job that is claimed, one method each. Every write after the claim names the lease holder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from convertq.queue.breaker import Breaker
from convertq.queue.claim import ClaimRequest, NextClaim
from convertq.queue.completion import Completion, FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.unreadable_row import UnreadableRow
from convertq.queue.errors import Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Failed, RetryLater
from psycopg.rows import DictRow

DependantPosition = tuple[UUID, UUID]  # a key of dependants_to_release: the completed job, the one that waits for it


class JobQueue:
    """It keeps no state besides its database: anyone may make one for a statement or two."""

    def __init__(self, database: Database, config: Config) -> None:
        self.database = database
        self._config = config

    # -- while a job is converted --

    def extend_lease(self, job: ClaimedJob) -> bool:
        """Returns False, like the other writes here, when the lease is lost."""
        requested_at = time.monotonic()
        row = self.database.one("extend_lease", **job.fence, lease_ttl=self._config.worker_lease_ttl_sec)
        return self._extended(job, requested_at, row)

    def report_progress(
        self, job: ClaimedJob, step: str, percent: int, bytes_done: int, bytes_total: int | None
    ) -> bool:
        """It extends the lease too."""
        requested_at = time.monotonic()
        row = self.database.one(
            "report_progress", **job.fence, lease_ttl=self._config.worker_lease_ttl_sec, step=step,
            percent=percent, bytes_done=bytes_done, bytes_total=bytes_total, message=None,
        )  # fmt: skip
        return self._extended(job, requested_at, row)

    def _extended(self, job: ClaimedJob, requested_at: float, row: DictRow | None) -> bool:
        if row is not None:
            job.lease_ends = requested_at + self._config.worker_lease_ttl_sec
        return row is not None

    def lock_lease(self, job: ClaimedJob) -> bool:
        return self.database.one("lock_lease", **job.fence) is not None

    # -- the end of an attempt --

    @contextmanager
    def completing(
        self, finished: FinishedJob, breaker: Breaker, next_claim: NextClaim | None = None
    ) -> Iterator[Completion]:
        """The transaction that completes a job. The caller publishes the result inside it, while the row is locked.

        It is committed at the end of the `with` block; an error in the block rolls everything back. With `next_claim`
        the same commit claims the next job.
        """
        with ExitStack() as transaction:
            claimed = self._complete_and_claim(transaction, finished, next_claim) if next_claim else None
            if claimed is None:
                completion = Completion(is_leased=self._complete_alone(transaction, finished, breaker))
            else:
                completion = Completion(is_leased=claimed[1]["completed"])
            yield completion
        if next_claim and claimed and completion.is_leased:
            completion.claim = next_claim.cursor.accept(*claimed)

    def _complete_and_claim(
        self, transaction: ExitStack, finished: FinishedJob, next_claim: NextClaim
    ) -> tuple[ClaimRequest, DictRow] | None:
        """One round trip, and another one for the commit. None means that the completion has to go alone.

        A pooler cannot run a pipeline. A trial has to close the breaker before anything else is claimed. A next job
        whose row cannot be read is claimed by a statement of its own, after which the worker marks it failed.
        """
        if finished.job.is_trial or self.database.connection.is_pooled:
            return None
        request = next_claim.cursor.request(next_claim.server, next_claim.holder)
        parameters = {**request.parameters, "claimant": request.holder, **self._parameters_of(finished)}
        try:
            [[row]] = transaction.enter_context(
                self.database.pipelined_transaction(("complete_and_claim", parameters))
            )  # fmt: skip
        except UnreadableRow:
            return None
        return request, row

    def _complete_alone(self, transaction: ExitStack, finished: FinishedJob, breaker: Breaker) -> bool:
        transaction.enter_context(self.database.transaction())
        is_leased = self.complete_job(finished)
        if is_leased:
            breaker.end_trial(self.database, finished.job, called=finished.outcome.gateway_ok)
        return is_leased

    def complete_job(self, finished: FinishedJob) -> bool:
        return self.database.one("complete_job", **self._parameters_of(finished)) is not None

    def _parameters_of(self, finished: FinishedJob) -> dict[str, Any]:
        return finished.parameters(self._config.retention_results_days)

    def was_completed(self, job: ClaimedJob) -> bool:
        """Whether this attempt's completion was committed although its answer never came."""
        return self.database.one("find_completion", **job.fence) is not None

    def schedule_retry(self, job: ClaimedJob, outcome: RetryLater) -> datetime | None:
        """Returns when the retry is due; None when the lease is lost."""
        row = self.database.one(
            "schedule_retry",
            **job.fence,
            delay_ms=outcome.delay_ms,
            **_error(outcome.failure),
            duration_ms=job.duration_ms,
        )
        return row["retry_after"] if row else None

    def fail_job(self, job: ClaimedJob, outcome: Failed) -> bool:
        row = self.database.one(
            "fail_job",
            **job.fence,
            dead_letter=outcome.dead_letter,
            **_error(outcome.failure),
            duration_ms=job.duration_ms,
        )
        return row is not None

    def requeue_job(self, job: ClaimedJob, reason: str) -> bool:
        return self.database.one("requeue_job", **job.fence, reason=reason) is not None

    # -- what a lost worker leased --

    def find_leased_jobs(self, holder: str) -> list[DictRow]:
        return self.database.run("find_leased_jobs", holder=holder)

    def requeue_worker_jobs(
        self, holder: str, *, counted: bool, reason: str, except_id: UUID | None = None
    ) -> list[DictRow]:
        """`except_id` is the job that a living worker knows of, and keeps."""
        return self.database.run(
            "requeue_worker_jobs",
            holder=holder,
            max_attempts=self._config.retry_max_attempts,
            counted=counted,
            reason=reason,
            except_id=except_id,
        )

    def release_dependants(self, after: DependantPosition | None) -> DependantPosition | None:
        """One slice of what completed jobs have left to release; where to go on from, or None when all was tried."""
        after_depends_on, after_job = after or (UUID(int=0), UUID(int=0))
        row = self.database.run("release_dependants", after_depends_on=after_depends_on, after_job=after_job)[0]
        return (row["after_depends_on"], row["after_job"]) if row["after_job"] else None

    def reclaim_jobs(self, listening_since: datetime | None = None) -> list[DictRow]:
        """Silent servers are marked dead first, so that their jobs come back in the same pass."""
        self.database.run(
            "mark_servers_dead", heartbeat_timeout=self._config.worker_heartbeat_timeout_sec,
            longest_gap=self._config.heartbeat_gap_sec, listening_since=listening_since,
        )  # fmt: skip
        return self.database.run("reclaim_jobs", max_attempts=self._config.retry_max_attempts)


def _error(failure: Failure) -> dict[str, object]:
    return {
        "error_code": failure.code,
        "error_message": failure.message,
        "gateway_ok": failure.gateway_ok,
        "gateway_status": failure.gateway_status,
        "gateway_ms": failure.gateway_ms,
    }
