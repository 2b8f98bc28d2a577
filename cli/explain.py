"""The operator's sentence about a job: where it is, why, and what happens next, with hosts, times and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from convertq.cli.breaker import gateway_option
from convertq.cli.formatting import duration, timestamp
from convertq.cli.pause import resume_options
from convertq.queue.config import STUCK_AFTER_SECONDS
from convertq.queue.database.timestamps import is_never
from convertq.queue.estimates import MOST_COUNTED_JOBS
from convertq.queue.explain import Explanation, Loss, State, explain
from convertq.queue.facts import Facts
from convertq.queue.gateway import DEFAULT_GATEWAY
from convertq.queue.limits import describe_limit, view_limit
from convertq.queue.manual_retry import must_be_complete_first, name_statuses
from convertq.queue.pauses import Scope, describe_scope
from convertq.queue.quantities import counted
from convertq.queue.status import JobStatus

NO_WORKER = "no worker is running: start one with `convertq worker run`"


class Subject(NamedTuple):
    """A job, with what is known of it and what follows from that."""

    facts: Facts
    found: Explanation

    @property
    def job(self) -> Mapping[str, Any]:
        return self.facts.job

    @property
    def queue(self) -> Mapping[str, Any]:
        return self.facts.queue

    @property
    def attempts(self) -> str:
        return f"attempt {self.found.attempt} of {self.found.most_attempts}"

    def at(self, time: datetime) -> str:
        return timestamp(time, self.facts.now)


def explain_job(facts: Facts) -> str:
    found = explain(facts)
    return SENTENCES[found.state](Subject(facts, found))


def _blocked(about: Subject) -> str:
    needed = about.facts.needed
    plural = "jobs" if len(needed) > 1 else "job"
    ended = [str(row["id"]) for row in needed if JobStatus(row["status"]).is_terminal]
    remedy = f"; `convertq retry {' '.join(ended)}` is needed first" if ended else ""
    return f"waits for {plural} {name_statuses(needed)} to complete{remedy}"


def _released(about: Subject) -> str:
    return f"every job that it waited for is complete: a worker queues it within seconds{_nobody(about)}"


def _stored(about: Subject) -> str:
    return "stored but not queued yet: the program that stored it sets its status to queued"


def _paused(about: Subject) -> str:
    queue = about.queue
    scope = Scope(queue["paused_gateway"], queue["paused_owner"])
    who = f"{describe_scope(scope)} is paused by {queue['paused_by']} since {about.at(queue['paused_at'])}"
    return f"paused: {who}; `convertq resume{resume_options(scope)}` lets it be claimed again"


def _held(about: Subject) -> str:
    queue, since, route = about.queue, about.at(about.queue["opened_at"]), about.job["route"]
    breaker = "the breaker" if route == DEFAULT_GATEWAY else f"the breaker of gateway {route}"
    if queue["by_hand"]:
        remedy = f"`convertq breaker close{gateway_option(route)}` lets jobs through"
        return f"held: {breaker} was opened by hand at {since}; {remedy}"
    if queue["breaker"] == "half_open":
        return f"held: {breaker} is open since {since} and tries the gateway with one job now"
    probe = f"at {about.at(about.found.until)}" if about.found.until else "soon"
    return f"held: {breaker} is open since {since}; the gateway is tried again {probe}"


def _limited(about: Subject) -> str:
    waited = duration(about.facts.now - (about.job["queued_at"] or about.job["created_at"]))
    most = counted(about.queue["owner_max_running"], "job")
    why = f"no more than {most} of its owner may run at a time (OWNER_MAX_RUNNING)"
    return f"queued for {waited}: {why}; it is taken in its turn when others of its owner have ended{_nobody(about)}"


def _parked(about: Subject) -> str:
    return "parked: its retry_after is infinity, so no worker takes it until that is changed"


def _retrying(about: Subject) -> str:
    due, reason = about.job["retry_after"], about.found.reason or "the reason is no longer recorded"
    return f"waits for its retry at {about.at(due)}, {about.attempts}: {reason}{_nobody(about)}"


def _scheduled(about: Subject) -> str:
    return f"waits until {about.at(about.job['not_before'])}, before which it must not begin{_nobody(about)}"


def _queued(about: Subject) -> str:
    waited = duration(about.facts.now - (about.job["queued_at"] or about.job["created_at"]))
    next_step = _nobody(about) or _at_limit(about) or "; the next free worker takes it in its turn"
    return f"queued for {waited}, {_position(about)}{next_step}"


def _at_limit(about: Subject) -> str:
    """Why a free worker does not take it: its gateway has as many calls as it may have."""
    queue = about.queue
    if queue["max_calls"] is None or queue["running_calls"] < queue["max_calls"]:
        return ""
    known = {**queue, **view_limit(queue)}
    limit = f"limit {queue['max_calls']}"
    if known["limit_reason"]:
        limit = describe_limit(known, f"since {about.at(known['limit_since'])}")
    return f"; its gateway {about.job['route']} is at its limit of calls at a time ({limit})"


def _position(about: Subject) -> str:
    before = (about.facts.position or 1) - 1
    if before == 0:
        return "the first in the queue"
    turns = ", where owners take turns" if about.queue["takes_turns"] else ""
    about_so_many = "about " if before >= MOST_COUNTED_JOBS else ""
    return f"{about_so_many}{counted(before, 'job')} before it{turns}"


def _nobody(about: Subject) -> str:
    """Why no worker will claim it; empty where one will."""
    facts, queue = about.facts, about.queue
    if not facts.has_workers:
        return f"; {NO_WORKER}"
    if facts.paused_here and queue["active_here"]:
        others = queue["active_servers"] > queue["active_here"]
        left = "others take it in its turn" if others else "`convertq doctor` has the remedy"
        return f"; this host claims nothing: {facts.paused_here}; {left}"
    return ""


def _processing(about: Subject) -> str:
    progress = about.job["progress"]
    step = f": {progress['step']}, {progress['percent']}%" if progress else ""
    return f"{_converted_by(about)}{step}{_time_left(about)}"


def _converted_by(about: Subject) -> str:
    since = f", since {about.at(about.job['last_attempt_at'])}" if about.job["last_attempt_at"] else ""
    return f"being converted by {about.job['leased_by']}, {about.attempts}{since}"


def _time_left(about: Subject) -> str:
    ends = about.found.until
    if not ends:
        return ""
    if ends > about.facts.now:
        return f"; the gateway has until {about.at(ends)}"
    stuck_at = ends + timedelta(seconds=STUCK_AFTER_SECONDS)
    return f"; the gateway's time was over at {about.at(ends)}: a worker that is stuck is ended at {about.at(stuck_at)}"


def _lost(about: Subject) -> str:
    next_step = "so any worker requeues it soon, and so does `convertq reclaim`"
    if not about.facts.has_workers:
        next_step = f"and {NO_WORKER}"
    return f"was {_converted_by(about)}; {_loss(about)}, {next_step}"


def _loss(about: Subject) -> str:
    match about.found.loss:
        case Loss.LEASE_EXPIRED:
            return f"its lease expired at {about.at(about.job['lease_expires_at'])}"
        case Loss.SERVER_ENDED:
            return f"that server is {about.queue['holder_status']}"
    return f"that server's last heartbeat was {duration(about.queue['holder_silent'])} ago"


def _complete(about: Subject) -> str:
    return f"{_done(about)}{_kept(about)}: `convertq result {about.job['id']}`"


def _done(about: Subject) -> str:
    return f"complete since {about.at(about.job['completed_at'])}"


def _kept(about: Subject) -> str:
    expires_at = about.found.until
    if not expires_at:
        return ""
    return ", kept without a limit" if is_never(expires_at) else f", kept until {about.at(expires_at)}"


def _expired(about: Subject) -> str:
    return f"{_done(about)}, but its result has expired: submit the file again"


def _missing(about: Subject) -> str:
    if str(about.job["result_path"]).startswith("s3://"):
        return f"{_done(about)}, but its result is gone from the storage: submit the file again"
    remedy = "name the right one, or submit the file again"
    return f"{_done(about)}, but its result is not in this host's RESULTS_DIR: {remedy}"


def _refused(about: Subject) -> str:
    return f"refused: {_why(about)}; nothing of it is stored"


def _failed(about: Subject) -> str:
    when = f"failed in {about.attempts}" if about.found.attempt else "failed without an attempt"
    return f"{when}: {_why(about)}; {_after_failure(about)}"


def _given_up(about: Subject) -> str:
    return f"given up after {about.attempts}: {_why(about)}; {_after_failure(about)}"


def _cancelled(about: Subject) -> str:
    return f"cancelled at {about.at(about.job['cancelled_at'])}{_cancelled_by(about)}; {_after_cancel(about)}"


def _cancelled_by(about: Subject) -> str:
    last = next((event for event in reversed(about.facts.events) if event["event_type"] == "cancelled"), None)
    by = last["meta"].get("by") if last else None
    return f" by {by}" if by and by != "trigger" else ""


def _after_cancel(about: Subject) -> str:
    if about.found.can_retry:
        return f"`convertq retry {about.job['id']}` queues it again"
    return "its source is gone: submit the file again"


def _why(about: Subject) -> str:
    return f"{about.found.error_code}: {about.found.reason or 'no reason is recorded'}"


def _after_failure(about: Subject) -> str:
    if about.found.can_retry:
        return f"`convertq retry {about.job['id']}` queues it again"
    needed: Sequence[Mapping[str, Any]] = about.facts.needed
    return must_be_complete_first(needed) if about.facts.has_source else "its source is gone: submit the file again"


SENTENCES: Mapping[State, Callable[[Subject], str]] = {
    State.STORED: _stored,
    State.BLOCKED: _blocked,
    State.RELEASED: _released,
    State.PAUSED: _paused,
    State.HELD: _held,
    State.LIMITED: _limited,
    State.PARKED: _parked,
    State.SCHEDULED: _scheduled,
    State.RETRYING: _retrying,
    State.QUEUED: _queued,
    State.PROCESSING: _processing,
    State.LOST: _lost,
    State.COMPLETE: _complete,
    State.EXPIRED: _expired,
    State.MISSING: _missing,
    State.REFUSED: _refused,
    State.FAILED: _failed,
    State.GIVEN_UP: _given_up,
    State.CANCELLED: _cancelled,
}
