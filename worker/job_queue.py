"""The queue as a worker sees it: one method per statement, every write after the claim fenced by the lease."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from convertq.worker.config import Config
from convertq.worker.db import Database
from convertq.worker.errors import Failure
from convertq.worker.job import Job
from convertq.worker.outcome import Completed, Failed, RetryLater
from convertq.worker.trip import BEGIN, COMMIT
from psycopg.rows import DictRow

Claimant = tuple[str, str]  # a server, and a holder in it
Watermark = tuple[int, datetime, UUID]
START: Watermark = (-(2**63), datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
#: One part in so many of a worker's time may go into walking over dead rows at the beginning of the index. While there
#: are none, every claim starts there and the order is strict.
SHARE_FOR_WALKING = 20
CHEAP_WALK = 0.0005  # s: no more than the first row of the index costs where nothing is in the way
WALK_AT_LEAST_EVERY = 1.0  # s
#: s between looks for retries that have become due, while there is other work
LOOK_EVERY = 0.2


class Gate:
    """What a claim learnt besides its job."""

    def __init__(self, row: DictRow) -> None:
        self.breaker: str = row["breaker"]
        self.probe_is_due: bool = row["probe_is_due"]
        self.server_is_active: bool = row["server_is_active"]
        self.more_to_claim: bool = row["more_to_claim"]
        self.retry_is_due: bool = row["retry_is_due"]


class Question(NamedTuple):
    """A claim as it is asked, on a trip of its own or together with the completion of the job before."""

    holder: str
    asked: float
    from_the_start: bool
    parameters: dict[str, Any]


class JobQueue:
    def __init__(self, database: Database, config: Config) -> None:
        self.database = database
        self._config = config
        self._watermark = START
        self._walk_at = self._look_at = 0.0

    def claim_job(self, server: str, holder: str) -> tuple[Job | None, Gate]:
        """Finds nothing only where there is nothing: not before the watermark either, and no retry that is due."""
        while True:
            question = self._ask(server, holder, time.monotonic())
            job, gate = self._understand(question, self.database.run("claim_job", **question.parameters)[0])
            if job is not None or (question.from_the_start and not gate.retry_is_due):
                return job, gate
            self._walk_at = 0.0

    def _ask(self, server: str, holder: str, now: float) -> Question:
        from_the_start, look = now >= self._walk_at, now >= self._look_at
        after_priority, after_created_at, after_id = START if from_the_start else self._watermark
        parameters = {
            "server": server, "holder": holder, "lease_ttl": self._config.worker_lease_ttl_sec, "look_for_due": look,
            "after_priority": after_priority, "after_created_at": after_created_at, "after_id": after_id,
        }  # fmt: skip
        return Question(holder, now, from_the_start, parameters)

    def _understand(self, question: Question, row: DictRow) -> tuple[Job | None, Gate]:
        gate = Gate(row)
        if question.parameters["look_for_due"]:
            self._look_at = question.asked + LOOK_EVERY
        if gate.retry_is_due:
            self.promote_due_jobs()
        if row["id"] is None:
            self._look_at = 0.0  # whoever has nothing to do looks every time
            return None, gate
        self._watermark = (-row["priority"], row["created_at"], row["id"])
        if question.from_the_start:
            dear = SHARE_FOR_WALKING * max(0.0, row["walked"] - CHEAP_WALK)
            self._walk_at = question.asked + row["walked"] + min(dear, WALK_AT_LEAST_EVERY)
        return self._as_job(row, question), gate

    def _as_job(self, row: DictRow, question: Question) -> Job:
        return Job(
            id=row["id"], holder=question.holder, attempt=row["attempt"], mapping=row["mapping"], pretty=row["pretty"],
            bytes=row["bytes"], is_trial=row["breaker"] == "half_open", queued_ms=int(row["waited"] * 1000),
            claimed_at=time.monotonic(), lease_ends=question.asked + self._config.worker_lease_ttl_sec,
        )  # fmt: skip

    def promote_due_jobs(self) -> int:
        promoted = len(self.database.run("promote_due_jobs"))
        self._walk_at = self._look_at = 0.0  # they are as old as they were; and there may be more than one batch
        return promoted

    def extend_lease(self, job: Job) -> bool:
        asked = time.monotonic()
        held = self.database.one("extend_lease", **job.fence, lease_ttl=self._config.worker_lease_ttl_sec)
        return self._renewed(job, asked, held is not None)

    def report_progress(self, job: Job, step: str, percent: int, bytes_done: int, bytes_total: int | None) -> bool:
        asked = time.monotonic()
        held = self.database.one(
            "report_progress", **job.fence, lease_ttl=self._config.worker_lease_ttl_sec, step=step,
            percent=percent, bytes_done=bytes_done, bytes_total=bytes_total, message=None,
        )  # fmt: skip
        return self._renewed(job, asked, held is not None)

    def _renewed(self, job: Job, asked: float, held: bool) -> bool:
        if held:
            job.lease_ends = asked + self._config.worker_lease_ttl_sec
        return held

    def lock_lease(self, job: Job) -> bool:
        return self.database.one("lock_lease", **job.fence) is not None

    def complete_job(self, job: Job, outcome: Completed, result_path: str) -> bool:
        return self.database.one("complete_job", **self._completion(job, outcome, result_path)) is not None

    def _completion(self, job: Job, outcome: Completed, result_path: str) -> dict[str, Any]:
        return {
            **job.fence, "result_path": result_path, "retention_days": self._config.retention_results_days,
            "gateway_ok": outcome.gateway_ok, "gateway_status": outcome.gateway_status,
            "gateway_ms": outcome.gateway_ms, "duration_ms": job.duration_ms,
        }  # fmt: skip

    # -- the same in two trips and one commit, with the next claim --

    def complete_and_claim(
        self, job: Job, outcome: Completed, result_path: str, claimant: Claimant
    ) -> tuple[Question, DictRow] | None:
        """For commit_claim: a transaction is open in which both are done. None: the lease is lost, and it is not."""
        question = self._ask(*claimant, time.monotonic())  # before now(), which the new lease is counted from
        both = {**question.parameters, "claimant": question.holder, **self._completion(job, outcome, result_path)}
        _, [row] = self.database.trips.make(BEGIN, ("complete_and_claim", both))
        if not row["completed"]:
            self.database.connection.rollback()
            return None
        return question, row

    def commit_claim(self, question: Question, row: DictRow) -> tuple[Job | None, Gate]:
        self.database.trips.make(COMMIT)
        return self._understand(question, row)

    def schedule_retry(self, job: Job, outcome: RetryLater) -> datetime | None:
        """When it is due; None: the lease is lost."""
        row = self.database.one(
            "schedule_retry",
            **job.fence,
            delay_ms=outcome.delay_ms,
            **_error(outcome.failure),
            duration_ms=job.duration_ms,
        )
        return row["retry_after"] if row else None

    def fail_job(self, job: Job, outcome: Failed) -> bool:
        row = self.database.one(
            "fail_job",
            **job.fence,
            dead_letter=outcome.dead_letter,
            **_error(outcome.failure),
            duration_ms=job.duration_ms,
        )
        return row is not None

    def release_job(self, job: Job, reason: str) -> bool:
        return self.database.one("release_job", **job.fence, reason=reason) is not None

    def was_completed(self, job: Job) -> bool:
        """Whether this attempt's completion was committed although its answer never came."""
        return self.database.one("find_completion", **job.fence) is not None

    def requeue_worker_jobs(self, holder: str, *, counted: bool, reason: str) -> list[DictRow]:
        return self.database.run(
            "requeue_worker_jobs",
            holder=holder,
            max_attempts=self._config.retry_max_attempts,
            counted=counted,
            reason=reason,
        )

    def reclaim_jobs(self) -> list[DictRow]:
        """Silent servers are declared dead first, so that their jobs come back in the same pass."""
        self.database.run("bury_servers", heartbeat_timeout=self._config.worker_heartbeat_timeout_sec)
        return self.database.run("reclaim_jobs", max_attempts=self._config.retry_max_attempts)


def _error(failure: Failure) -> dict[str, object]:
    return {
        "error_code": failure.code,
        "error_message": failure.message,
        "gateway_ok": failure.gateway_ok,
        "gateway_status": failure.gateway_status,
        "gateway_ms": failure.gateway_ms,
    }
