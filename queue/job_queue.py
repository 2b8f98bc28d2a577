"""The statements about a job that is claimed, one method each. Every write after the claim names the lease holder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from convertq.queue.breaker import Breaker
from convertq.queue.claim import NO_CLAIM, ClaimRequest, NextClaim
from convertq.queue.completion import Completion, FinishedJob, completion_parameters
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.pipeline import Statement
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

    def find_lost_jobs(self, holder: str, jobs: Sequence[ClaimedJob]) -> dict[UUID, str | None]:
        """Those of these jobs that this worker no longer leases, each with its status; None: it was removed."""
        rows = self.database.run(
            "check_leases", holder=holder, ids=[job.id for job in jobs], attempts=[job.attempt for job in jobs],
            runs=[job.run for job in jobs],
        )  # fmt: skip
        return {row["id"]: row["status"] for row in rows}

    def find_status(self, job: ClaimedJob) -> str | None:
        """The status in the table; None: the job was removed."""
        row = self.database.one("get_statuses", ids=[job.id])
        return row["status"] if row else None

    def lock_lease(self, job: ClaimedJob) -> bool:
        return self.database.one("lock_lease", **job.fence) is not None

    # -- the end of an attempt --

    @contextmanager
    def completing(
        self, finished: Sequence[FinishedJob], breaker: Breaker, next_claim: NextClaim | None = None
    ) -> Iterator[Completion]:
        """The transaction that completes jobs. The caller publishes the results inside it, while the rows are locked.

        It is committed at the end of the `with` block; an error in the block rolls everything back. With `next_claim`
        the same commit claims the next jobs, unless a trial is completed: the breaker has to be closed before anything
        else is claimed.
        """
        is_trial = any(one.job.is_trial for one in finished)
        request = None if next_claim is None or is_trial else next_claim.request()
        at_commit: list[Statement] = []
        with self._completed(finished, request, at_commit) as rows:
            completion = Completion(set(rows[0]["completed"]), at_commit)
            for one in finished:
                if one.job.is_trial and one.job.id in completion.leased:
                    breaker.end_trial(self.database, one.job, called=one.outcome.gateway_ok)
            yield completion
        if next_claim and request and len(completion.leased) == len(finished):
            completion.claim = next_claim.cursor.accept(request, rows)

    @contextmanager
    def _completed(
        self, finished: Sequence[FinishedJob], request: ClaimRequest | None, at_commit: list[Statement]
    ) -> Iterator[list[DictRow]]:
        """A next job whose row cannot be read is left to a claim of its own, after which the worker marks it failed."""
        completion = completion_parameters(finished, self._config.retention_results_days)
        claim = request.parameters if request else NO_CLAIM
        with ExitStack() as transaction:
            try:
                rows = self._begin(transaction, {**claim, **completion}, at_commit)
            except UnreadableRow:
                rows = self._begin(transaction, {**NO_CLAIM, **completion}, at_commit)
            yield rows

    def _begin(
        self, transaction: ExitStack, parameters: dict[str, Any], at_commit: list[Statement]
    ) -> list[DictRow]:  # fmt: skip
        """Completes as the first statement of a transaction."""
        complete = ("complete_and_claim", parameters)
        [rows] = transaction.enter_context(self.database.pipelined_transaction(complete, at_commit=at_commit))
        return rows

    def find_outcome(self, job: ClaimedJob, event_type: str) -> DictRow | None:
        """What this attempt's event of this type says, if it was committed although its answer never came."""
        return self.database.one("find_outcome", **job.fence, event_type=event_type)

    def was_completed(self, job: ClaimedJob) -> bool:
        return self.find_outcome(job, "complete") is not None

    def schedule_retry(self, job: ClaimedJob, outcome: RetryLater) -> datetime | None:
        """Returns when the retry is due; None when the lease is lost."""
        row = self.database.one(
            "schedule_retry",
            **job.fence,
            delay_ms=outcome.delay_ms,
            **_error(outcome.failure, job),
            duration_ms=job.duration_ms,
        )
        return row["retry_after"] if row else None

    def fail_job(self, job: ClaimedJob, outcome: Failed) -> bool:
        row = self.database.one(
            "fail_job",
            **job.fence,
            dead_letter=outcome.dead_letter,
            **_error(outcome.failure, job),
            duration_ms=job.duration_ms,
        )
        return row is not None

    def requeue_job(self, job: ClaimedJob, reason: str, delay_ms: int = 0, gateway_status: int | None = None) -> bool:
        gateway = job.gateway_in_events if gateway_status is not None else None
        row = self.database.one(
            "requeue_job", **job.fence, reason=reason, delay_ms=delay_ms, gateway_status=gateway_status, gateway=gateway
        )  # fmt: skip
        return row is not None

    # -- what a lost worker leased --

    def find_leased_jobs(self, holder: str) -> list[DictRow]:
        return self.database.run("find_leased_jobs", holder=holder)

    def requeue_worker_jobs(
        self,
        holder: str,
        *,
        reason: str,
        begun: Sequence[UUID] | None = None,
        counted: bool = True,
        kept: Sequence[UUID] = (),
    ) -> list[DictRow]:
        """`begun` are the jobs whose attempt counts, if `counted`; None: all of them. `kept` are the jobs that a living
        worker knows of."""
        return self.database.run(
            "requeue_worker_jobs", holder=holder, max_attempts=self._config.retry_max_attempts, counted=counted,
            begun=None if begun is None else list(begun), reason=reason, kept=list(kept),
        )  # fmt: skip

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


def _error(failure: Failure, job: ClaimedJob) -> dict[str, object]:
    return {
        "error_code": failure.code,
        "error_message": failure.message,
        "gateway_ok": failure.gateway_ok,
        "gateway_status": failure.gateway_status,
        "gateway_ms": failure.gateway_ms,
        "gateway": job.gateway_in_events if failure.called else None,
    }
