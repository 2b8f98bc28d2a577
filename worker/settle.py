"""The end of an attempt: its outcome written, fenced by the lease, and its result file published with it."""

from __future__ import annotations

from typing import assert_never

from convertq.worker.breaker import Breaker
from convertq.worker.errors import Code, Failure, io_failure
from convertq.worker.files import Files, discard, put_in_place
from convertq.worker.job import Job
from convertq.worker.job_queue import Claimant, Gate, JobQueue
from convertq.worker.log import Log
from convertq.worker.outcome import Completed, Failed, Interrupted, Lost, Outcome, RetryLater
from convertq.worker.xml_check import is_whole


class Settlement:
    """May be run again after a lost connection: each step finds what the one before has done."""

    def __init__(self, queue: JobQueue, files: Files, breaker: Breaker, log: Log) -> None:
        self._queue, self._files, self._breaker, self._log = queue, files, breaker, log

    def settle(self, job: Job, outcome: Outcome, claimant: Claimant | None = None) -> tuple[Job | None, Gate] | None:
        """With a claimant, a success claims the next job in the same commit: that claim is returned."""
        claim = None
        match outcome:
            case Completed():
                claim = self._complete(job, outcome, claimant)
            case RetryLater():
                self._retry(job, outcome)
            case Failed():
                self._fail(job, outcome)
            case Interrupted(reason):
                self._give_back(job, reason)
            case Lost(reason):
                self._let_go(job, reason)
            case _:
                assert_never(outcome)
        self._breaker.say()
        return claim

    def _complete(self, job: Job, outcome: Completed, claimant: Claimant | None) -> tuple[Job | None, Gate] | None:
        claim, result = None, self._files.of_attempt(job.name, job.attempt, job.holder).result
        if claimant is None or job.is_trial or self._queue.database.connection.is_pooled:
            held = self._publish_and_complete(job, outcome, result)
        else:
            held, claim = self._publish_complete_and_claim(job, outcome, result, claimant)
        if not held and not self._queue.was_completed(job):
            self._let_go(job, "another holder has the job")
            return None
        if outcome.part:
            discard(outcome.part)
        self._say("complete", job, "complete", gateway_ms=outcome.gateway_ms, gateway_status=outcome.gateway_status)
        return claim

    def _publish_and_complete(self, job: Job, outcome: Completed, result: str) -> bool:
        with self._queue.database.transaction():
            held = self._queue.lock_lease(job)
            if held:
                self._publish(outcome, result)
                self._queue.complete_job(job, outcome, result)
                self._breaker.trial_went_well(self._queue.database, job)
        return held

    def _publish_complete_and_claim(
        self, job: Job, outcome: Completed, result: str, claimant: Claimant
    ) -> tuple[bool, tuple[Job | None, Gate] | None]:
        """In the middle of a queue: two trips to the database and one commit per job."""
        claim = self._queue.complete_and_claim(job, outcome, result, claimant)
        if claim is None:
            return False, None
        try:
            self._publish(outcome, result)
        except Failure:
            self._queue.database.connection.rollback()
            raise
        return True, self._queue.commit_claim(*claim)

    def _publish(self, outcome: Completed, result: str) -> None:
        """Inside the transaction that locks the row: whoever is not the holder never comes here."""
        if outcome.part is None:
            return
        try:
            put_in_place(outcome.part, result)
        except FileExistsError:
            # put there meanwhile by an attempt that was paused before its commit: whole, it is as good as this one's
            if not is_whole(result):
                raise Failure(Code.IO_ERROR, "another file is in the result's place") from None
        except OSError as error:
            raise io_failure("the result cannot be put in place", error) from None

    def _retry(self, job: Job, outcome: RetryLater) -> None:
        with self._breaker.recording(self._queue.database, job, outcome.failure):
            due = self._queue.schedule_retry(job, outcome)
        self._discard_part(job)
        if due is None:
            self._let_go(job, "another holder has the job")
            return
        self._say_failure("retry", job, "queued", outcome.failure, retry_after=due.isoformat())

    def _fail(self, job: Job, outcome: Failed) -> None:
        with self._breaker.recording(self._queue.database, job, outcome.failure):
            held = self._queue.fail_job(job, outcome)
        self._discard_part(job)
        if not held:
            self._let_go(job, "another holder has the job")
            return
        self._say_failure("failed", job, "failed", outcome.failure, dead_letter=outcome.dead_letter)

    def _give_back(self, job: Job, reason: str) -> None:
        held = self._queue.release_job(job, reason)
        self._discard_part(job)
        if held:
            self._say("requeue", job, "queued", reason=reason)
        else:
            self._let_go(job, "another holder has the job")

    def _let_go(self, job: Job, reason: str) -> None:
        let_go(job, self._files, self._log, reason)

    def _discard_part(self, job: Job) -> None:
        discard(self._files.part(job.id, job.attempt, job.holder))

    def _say_failure(self, event: str, job: Job, status: str, failure: Failure, **more: object) -> None:
        self._say(
            event, job, status, error_code=str(failure.code), error_message=failure.message,
            gateway_status=failure.gateway_status, gateway_ms=failure.gateway_ms, detail=failure.detail, **more,
        )  # fmt: skip

    def _say(self, event: str, job: Job, status: str, **fields: object) -> None:
        known = {name: value for name, value in fields.items() if value is not None}
        self._log(event, job_id=job.name, status=status, attempt=job.attempt, duration_ms=job.duration_ms, **known)


def let_go(job: Job, files: Files, log: Log, reason: str) -> None:
    """Needs no database: the row and the result file are another's now, or will be when the lease has ended."""
    discard(files.part(job.id, job.attempt, job.holder))
    known = {"job_id": job.name, "status": "processing", "attempt": job.attempt, "duration_ms": job.duration_ms}
    log("lease_lost", **known, reason=reason)
