"""Settling an attempt: its outcome is recorded by the lease holder alone, and its result is published with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import assert_never

from convertq.queue.artifact import insert_artifacts
from convertq.queue.breaker import Breaker
from convertq.queue.cancel import discard_results
from convertq.queue.claim import Claim, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.answers import Answers
from convertq.queue.database.errors import in_plain_words
from convertq.queue.errors import Code, Failure, io_failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import (
    ClaimedJobEvent,
    JobCancelled,
    JobCompleted,
    JobEvents,
    JobFailed,
    JobRequeued,
    LeaseLost,
    RetryScheduled,
)
from convertq.queue.job_queue import JobQueue
from convertq.queue.outcome import Cancelled, Completed, Failed, Interrupted, Lost, Outcome, RetryLater
from convertq.queue.retry_policy import after_failure
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import PendingResult, Store

ANOTHER_HOLDER = "another holder has the job"

Permit = Callable[[Answers], AbstractContextManager[object]]


class Settlement:
    """It may be repeated after a lost connection: every step accepts what an earlier try has done."""

    def __init__(
        self, queue: JobQueue, store: Store, breaker: Breaker, events: JobEvents, permit: Permit | None = None
    ) -> None:  # fmt: skip
        """`permit` surrounds each completing transaction."""
        self._queue, self._store, self._breaker, self._events = queue, store, breaker, events
        self._permit = permit or nullcontext

    def settle(self, job: ClaimedJob, outcome: Outcome, next_claim: NextClaim | None = None) -> Claim | None:
        """With `next_claim`, the commit of a success claims the next jobs too: that claim is returned."""
        match outcome:
            case Completed():
                return self.complete([FinishedJob(job, outcome)], next_claim)
            case RetryLater():
                self._schedule_retry(job, outcome)
            case Failed():
                self._fail(job, outcome)
            case Interrupted():
                self._requeue(job, outcome)
            case Lost(reason):
                self._abandon(job, reason)
            case Cancelled():
                self._end_cancelled(job)
            case _:
                assert_never(outcome)
        self._breaker.log_changes(self._queue.database)
        return None

    def complete(self, finished: Sequence[FinishedJob], next_claim: NextClaim | None = None) -> Claim | None:
        """All of them in one commit; an error leaves all of them as they were."""
        pipeline = self._queue.database.pipeline
        with self._permit(pipeline), self._queue.completing(finished, self._breaker, next_claim) as completion:
            leased = [one for one in finished if one.job.id in completion.leased]
            self._publish([one.outcome.result for one in leased])
            artifacts = [(one.job.id, one.outcome.artifact) for one in leased if one.outcome.artifact is not None]
            if artifacts:
                completion.at_commit.append(insert_artifacts(artifacts))
        for one in finished:
            if one.job.id in completion.leased or self._queue.was_completed(one.job):
                self._end_completed(one)
            else:
                self._lose(one.job)
        self._breaker.log_changes(self._queue.database)
        return completion.claim

    def _end_completed(self, finished: FinishedJob) -> None:
        if finished.outcome.result:
            finished.outcome.result.discard()
        self._events.emit(JobCompleted(finished.job, finished.outcome))

    def _lose(self, job: ClaimedJob) -> None:
        """The fence has refused the outcome: somebody cancelled the job, removed it, or another holder has it."""
        status = self._queue.find_status(job)
        if status == JobStatus.CANCELLED:
            self._end_cancelled(job)
            return
        self._abandon(job, ANOTHER_HOLDER)
        if status is None:
            # The job was forgotten, and an earlier try, whose commit failed, may have published the result.
            with contextlib.suppress(OSError):
                self._store.remove_result(job.id)

    def _end_cancelled(self, job: ClaimedJob) -> None:
        """The result may be published already, by a commit that was lost, or uploaded to object storage."""
        discard_results(self._queue.database, self._store, [job.id])
        self._end(job, JobCancelled(job))

    def _publish(self, results: Sequence[PendingResult | None]) -> None:
        """Runs inside the transaction that locks their rows: a worker without the lease never gets here."""
        pending = [result for result in results if result]
        try:
            for result in pending:
                result.publish()
            if pending:
                self._store.sync_results()
        except FileExistsError:
            raise Failure(Code.IO_ERROR, "another file is in the result's place") from None
        except OSError as error:
            raise io_failure("the result cannot be put in place", error) from None

    def _schedule_retry(self, job: ClaimedJob, outcome: RetryLater) -> None:
        with self._breaker.recording(self._queue.database, job, outcome.failure):
            retry_after = self._queue.schedule_retry(job, outcome)
        if retry_after is None and (recorded := self._queue.find_outcome(job, "retry")):
            retry_after = recorded["retry_after"]
        if retry_after is None:
            self._lose(job)
        else:
            self._end(job, RetryScheduled(job, outcome.failure, retry_after))

    def _fail(self, job: ClaimedJob, outcome: Failed) -> None:
        with self._breaker.recording(self._queue.database, job, outcome.failure):
            is_leased = self._queue.fail_job(job, outcome)
        if is_leased or self._queue.find_outcome(job, "failed"):
            self._end(job, JobFailed(job, outcome.failure, outcome.dead_letter))
        else:
            self._lose(job)

    def _requeue(self, job: ClaimedJob, outcome: Interrupted) -> None:
        is_answered = outcome.gateway_status is not None
        with self._breaker.ending_trial(self._queue.database, job, is_answered=is_answered):
            is_leased = self._queue.requeue_job(job, outcome.reason, outcome.delay_ms, outcome.gateway_status)
        if is_leased or self._queue.find_outcome(job, "requeued"):
            self._end(job, JobRequeued(job, outcome.reason))
        else:
            self._lose(job)

    def _abandon(self, job: ClaimedJob, reason: str) -> None:
        abandon_job(job, self._store, self._events, reason)

    def _end(self, job: ClaimedJob, event: ClaimedJobEvent) -> None:
        """Ends an attempt that has no result to publish."""
        self._store.discard_temporary_file(job.name, job.attempt, job.holder)
        self._events.emit(event)


def abandon_job(job: ClaimedJob, store: Store, events: JobEvents, reason: str) -> None:
    """Needs no database: another holder has the row and the result, or will have them when the lease has expired."""
    store.discard_temporary_file(job.name, job.attempt, job.holder)
    events.emit(LeaseLost(job, reason))


def outcome_if_not_recorded(job: ClaimedJob, outcome: Outcome, error: BaseException, config: Config) -> Outcome:
    """What to record of an attempt whose own outcome the database refuses: a failure with the reason, or nothing."""
    why = in_plain_words(error)
    if not isinstance(outcome, Completed):
        return Lost(f"the outcome could not be recorded: {why}")
    failure = Failure(
        Code.UNKNOWN, f"the result could not be recorded: {why}", called=outcome.gateway_ok is not None,
        gateway_status=outcome.gateway_status, gateway_ms=outcome.gateway_ms,
    )  # fmt: skip
    return after_failure(failure, job.attempt, config)
