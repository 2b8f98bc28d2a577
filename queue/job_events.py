"""What happens to a job while a worker has it, as typed events, and the hub that passes each event to its listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from convertq.queue.errors import Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Completed
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow


@dataclass(slots=True)
class ClaimedJobEvent:
    """An event of a job that this process has claimed."""

    name: ClassVar[str]  # as in the log
    status: ClassVar[JobStatus] = JobStatus.PROCESSING  # of the job, after the event
    job: ClaimedJob

    def fields(self) -> dict[str, Any]:
        """What a log line shows besides the name, in this order."""
        known = {"job_id": self.job.name, "status": self.status, "attempt": self.job.attempt}
        if gateway := self.job.gateway_in_events:
            known["gateway"] = gateway
        return known

    def fields_with_duration(self, **more: Any) -> dict[str, Any]:
        """Like `fields`, with the time since the claim, and without what is not known."""
        known = {name: value for name, value in more.items() if value is not None}
        return {**ClaimedJobEvent.fields(self), "duration_ms": self.job.duration_ms, **known}


@dataclass(slots=True)
class JobClaimed(ClaimedJobEvent):
    name = "claim"
    breaker: str

    def fields(self) -> dict[str, Any]:
        return {**ClaimedJobEvent.fields(self), "queued_ms": self.job.queued_ms, "breaker": self.breaker}


@dataclass(slots=True)
class AttemptStarted(ClaimedJobEvent):
    name = "start"


@dataclass(slots=True)
class GatewaySucceeded(ClaimedJobEvent):
    name = "gateway_ok"
    outcome: Completed

    def fields(self) -> dict[str, Any]:
        call = {"gateway_ms": self.outcome.gateway_ms, "gateway_status": self.outcome.gateway_status}
        return {**ClaimedJobEvent.fields(self), **call}


@dataclass(slots=True)
class GatewayFailed(ClaimedJobEvent):
    """The gateway was called, and the call did not give a usable result."""

    name = "gateway_error"
    failure: Failure

    def fields(self) -> dict[str, Any]:
        call = {"gateway_ms": self.failure.gateway_ms, "gateway_status": self.failure.gateway_status}
        error = {"error_code": str(self.failure.code), "error_message": self.failure.message}
        return {**ClaimedJobEvent.fields(self), **call, **error}


@dataclass(slots=True)
class LeaseExtended(ClaimedJobEvent):
    name = "lease_extended"


@dataclass(slots=True)
class LeaseLost(ClaimedJobEvent):
    """The worker abandoned its attempt: another holder has the job, or will have it when the lease has expired."""

    name = "lease_lost"
    reason: str

    def fields(self) -> dict[str, Any]:
        return self.fields_with_duration(reason=self.reason)


@dataclass(slots=True)
class JobCompleted(ClaimedJobEvent):
    name, status = "complete", JobStatus.COMPLETE
    outcome: Completed

    def fields(self) -> dict[str, Any]:
        return self.fields_with_duration(gateway_ms=self.outcome.gateway_ms, gateway_status=self.outcome.gateway_status)


@dataclass(slots=True)
class RetryScheduled(ClaimedJobEvent):
    name, status = "retry", JobStatus.QUEUED
    failure: Failure
    retry_after: datetime

    def fields(self) -> dict[str, Any]:
        return self.fields_with_duration(**_error(self.failure), retry_after=self.retry_after.isoformat())


@dataclass(slots=True)
class JobFailed(ClaimedJobEvent):
    name, status = "failed", JobStatus.FAILED
    failure: Failure
    dead_letter: bool

    def fields(self) -> dict[str, Any]:
        return self.fields_with_duration(**_error(self.failure), dead_letter=self.dead_letter)


@dataclass(slots=True)
class JobRequeued(ClaimedJobEvent):
    """The worker had to stop, and requeued its job before the attempt was over."""

    name, status = "requeue", JobStatus.QUEUED
    reason: str

    def fields(self) -> dict[str, Any]:
        return self.fields_with_duration(reason=self.reason)


@dataclass(slots=True)
class JobCancelled(ClaimedJobEvent):
    """Somebody cancelled the job while this worker had it."""

    name, status = "cancelled", JobStatus.CANCELLED

    def fields(self) -> dict[str, Any]:
        return self.fields_with_duration()


@dataclass(slots=True)
class LostJobEvent:
    """A job that its worker has lost: it is queued again, or failed if that was its last attempt."""

    name: str  # as in the log
    row: DictRow  # of reclaim_jobs or requeue_worker_jobs
    details: dict[str, str]

    def fields(self) -> dict[str, Any]:
        row = self.row
        known = {"job_id": row["id"], "status": row["status"], "attempt": row["attempt"], **self.details}
        if row["status"] != JobStatus.FAILED:
            return known
        return {**known, "error_code": row["error_code"], "error_message": row["error_message"], "dead_letter": True}


def lost_job_reclaimed(row: DictRow) -> LostJobEvent:
    """Its lease has expired, or its server is dead."""
    name = "failed" if row["status"] == JobStatus.FAILED else "reclaim"
    return LostJobEvent(name, row, {"reason": row["reason"], "holder": row["holder"]})


def lost_job_requeued(row: DictRow, **worker: str) -> LostJobEvent:
    """Its worker has died or does not know of it. Only a supervisor has to name the worker."""
    name = "failed" if row["status"] == JobStatus.FAILED else "requeue"
    return LostJobEvent(name, row, {"reason": row["reason"], **worker})


@dataclass(slots=True)
class JobExpired:
    """Its deadline passed before an attempt could begin."""

    row: DictRow  # of expire_jobs
    name: str = "failed"

    def fields(self) -> dict[str, Any]:
        row = self.row
        known = {"job_id": row["id"], "status": JobStatus.FAILED, "attempt": row["attempt"]}
        return {**known, "error_code": row["error_code"], "error_message": row["error_message"], "dead_letter": False}


JobEvent = ClaimedJobEvent | LostJobEvent | JobExpired
#: It is called while the worker waits, on its first or its monitor thread and never on both at once: it must be quick,
#: and must not raise.
JobListener = Callable[[JobEvent], None]


class JobEvents:
    """Passes every event to every listener, at once and in order."""

    def __init__(self, *listeners: JobListener) -> None:
        self._listeners = listeners

    def emit(self, event: JobEvent) -> None:
        for listener in self._listeners:
            listener(event)


def _error(failure: Failure) -> dict[str, Any]:
    return {
        "error_code": str(failure.code), "error_message": failure.message,
        "gateway_status": failure.gateway_status, "gateway_ms": failure.gateway_ms, "detail": failure.detail,
    }  # fmt: skip
