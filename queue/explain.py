"""Where a job is, why, and what happens next: one value, from which every sentence about a job is rendered.

The operator's sentence (`convertq show`), the visitor's sentence and the words of the pages differ in what they may
name. They must not differ in where the job is, which attempt counts, or whether it can be retried or downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from convertq.queue.database.timestamps import is_never
from convertq.queue.errors import FILE_REFUSALS
from convertq.queue.facts import Facts
from convertq.queue.queue_state import is_held
from convertq.queue.retry_policy import attempts_allowed
from convertq.queue.servers import ENDED
from convertq.queue.status import JobStatus


class State(StrEnum):
    """Finer than the status in the table: each state has its own sentence."""

    STORED = "stored"  # another program stored it, and sets its status to queued
    BLOCKED = "blocked"  # it waits for other jobs
    RELEASED = "released"  # every job that it waited for is complete
    PAUSED = "paused"  # it is queued, and its gateway or its owner is paused by hand
    HELD = "held"  # it is queued, and the breaker lets no job through
    LIMITED = "limited"  # it is queued, and its owner has as many running jobs as allowed
    PARKED = "parked"  # its retry_after is infinity
    SCHEDULED = "scheduled"  # it must not begin yet
    RETRYING = "retrying"  # it waits for its next attempt
    QUEUED = "queued"
    PROCESSING = "processing"
    LOST = "lost"  # its row says processing, and its worker is gone
    COMPLETE = "complete"
    EXPIRED = "expired"  # it is complete, and its result is no longer kept
    MISSING = "missing"  # it is complete, and its result cannot be read here
    REFUSED = "refused"  # its file was never accepted
    FAILED = "failed"
    GIVEN_UP = "given_up"  # it failed in its last attempt
    CANCELLED = "cancelled"


class Loss(StrEnum):
    """The sign that a worker is gone."""

    LEASE_EXPIRED = "lease_expired"
    SERVER_ENDED = "server_ended"
    SERVER_SILENT = "server_silent"


@dataclass(frozen=True)
class Explanation:
    state: State
    attempt: int  # the current or the last one; of a job that waits for its retry, the next one
    most_attempts: int
    error_code: str | None = None
    reason: str | None = None  # why the last attempt failed
    until: datetime | None = None  # when the state ends by itself, where that is known
    loss: Loss | None = None
    can_retry: bool = False
    can_cancel: bool = False
    can_download: bool = False


def explain(facts: Facts) -> Explanation:
    state, job = _state_of(facts), facts.job
    code, reason = _last_error(facts)
    return Explanation(
        state,
        attempt=job["attempt_count"] + (state is State.RETRYING),
        most_attempts=attempts_allowed(code, facts.max_attempts),
        error_code=code,
        reason=reason,
        until=_ends_at(facts, state),
        loss=_loss_of(facts) if state is State.LOST else None,
        can_retry=_can_retry(facts, state),
        can_cancel=JobStatus(job["status"]).is_active,
        can_download=state is State.COMPLETE,
    )


def _can_retry(facts: Facts, state: State) -> bool:
    """A cancelled job may be started over while it waits for another one: it is queued when that one is complete."""
    if state is State.CANCELLED:
        return facts.has_source
    return state in (State.FAILED, State.GIVEN_UP) and facts.has_source and not facts.must_wait


def _state_of(facts: Facts) -> State:
    status = JobStatus(facts.job["status"])
    match status:
        case JobStatus.UPLOADED:
            return _uploaded(facts)
        case JobStatus.QUEUED:
            return _queued(facts)
        case JobStatus.PROCESSING:
            return State.LOST if _loss_of(facts) else State.PROCESSING
        case JobStatus.COMPLETE:
            return _complete(facts)
        case JobStatus.FAILED:
            return _failed(facts)
        case JobStatus.CANCELLED:
            return State.CANCELLED
        case _:
            assert_never(status)


def _uploaded(facts: Facts) -> State:
    if facts.needed:
        return State.BLOCKED
    return State.RELEASED if facts.has_dependencies else State.STORED


def _queued(facts: Facts) -> State:
    """A pause comes first, because only a hand ends it, and then the breaker, which keeps every queued job waiting."""
    due = facts.job["retry_after"]
    if facts.is_paused:
        return State.PAUSED
    if is_held(facts.queue):
        return State.HELD
    if facts.is_limited and (due is None or due <= facts.now or is_never(due)):
        return State.LIMITED
    if due is not None and is_never(due):
        return State.PARKED
    if due is None or due <= facts.now:
        return State.QUEUED
    return State.SCHEDULED if due == facts.job.get("not_before") else State.RETRYING


def _complete(facts: Facts) -> State:
    if not facts.result_is_recorded:
        return State.EXPIRED
    return State.COMPLETE if facts.has_result else State.MISSING


def _failed(facts: Facts) -> State:
    if facts.job["error_code"] in FILE_REFUSALS:
        return State.REFUSED
    return State.GIVEN_UP if facts.job["dead_letter"] else State.FAILED


def _loss_of(facts: Facts) -> Loss | None:
    """None where there is no sign of it, or where the caller may not know the worker."""
    if (lease_ends := facts.job.get("lease_expires_at")) is None:
        return None
    silent_seconds = facts.queue["holder_silent"]
    if lease_ends < facts.now:
        return Loss.LEASE_EXPIRED
    if facts.queue["holder_status"] in ENDED:
        return Loss.SERVER_ENDED
    if silent_seconds is not None and silent_seconds > facts.heartbeat_timeout_seconds:
        return Loss.SERVER_SILENT
    return None


def _last_error(facts: Facts) -> tuple[str | None, str | None]:
    """The row's error once the job has failed; before that, the error of the last attempt."""
    job, last = facts.job, facts.last_error
    if job["status"] == JobStatus.FAILED or last is None:
        return job["error_code"], job["error_message"]
    return job["error_code"] or last.code, job["error_message"] or last.message


def _ends_at(facts: Facts, state: State) -> datetime | None:
    job = facts.job
    match state:
        case State.RETRYING | State.SCHEDULED:
            due: datetime = job["retry_after"]
            return due
        case State.HELD:
            return facts.queue.get("probe_after")
        case State.PROCESSING:
            began: datetime | None = job.get("last_attempt_at")
            return began + facts.gateway_timeout if began else None
        case State.COMPLETE:
            return job.get("expires_at")
    return None
