"""One sentence about a job: where it is, why, and what happens next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from convertq.cli.words import counted, duration, moment
from convertq.worker.board import STUCK_AFTER
from convertq.worker.errors import Code

Row = Mapping[str, Any]
NOBODY = "no worker is running: start one with `convertq worker run`"
#: jobs before this one that are counted; beyond it the exact number tells nobody anything
COUNTED = 1000


@dataclass(frozen=True)
class Facts:
    """Everything that the sentence depends on; `job` is a row of get_job, `hold` of get_prospects."""

    job: Row
    events: Sequence[Row]
    hold: Row
    needed: Sequence[Row] = field(default=())  # unfinished dependencies: id, status
    max_attempts: int = 3
    heartbeat_timeout: float = 40
    gateway_timeout: timedelta = timedelta(minutes=3)
    held_here: str = ""  # why this host claims nothing
    has_source: bool = True
    has_result: bool = True

    @property
    def now(self) -> datetime:
        now: datetime = self.job["now"]
        return now

    @property
    def most_attempts(self) -> int:
        """What a file's trouble allows: it is tried once more, and no more."""
        code = self.job["error_code"] or last_in_meta(self.events, "error_code")
        return min(2, self.max_attempts) if code == Code.IO_ERROR else self.max_attempts

    @property
    def attempts(self) -> str:
        return f"attempt {self.job['attempt_count']} of {self.most_attempts}"

    def at(self, time: datetime) -> str:
        return moment(time, self.now)


def explain_job(facts: Facts) -> str:
    return SENTENCES[facts.job["status"]](facts)


def _uploaded(facts: Facts) -> str:
    if not facts.needed:
        return "stored but not queued yet: whoever wrote it sets its status to queued"
    waits = ", ".join(f"{row['id']} ({row['status']})" for row in facts.needed)
    plural = "jobs" if len(facts.needed) > 1 else "job"
    failed = [str(row["id"]) for row in facts.needed if row["status"] == "failed"]
    remedy = f"; `convertq retry {' '.join(failed)}` is needed first" if failed else ""
    return f"waits for {plural} {waits} to complete{remedy}"


def _queued(facts: Facts) -> str:
    if facts.hold["breaker"] != "closed":
        return _held(facts)
    due = facts.job["retry_after"]
    if due is not None and due > facts.now:
        next_attempt = f"attempt {facts.job['attempt_count'] + 1} of {facts.most_attempts}"
        sentence = f"waits for its retry at {facts.at(due)}, {next_attempt}: {last_error(facts.events)}"
        return f"{sentence}{_nobody(facts)}"
    waited = duration(facts.now - (facts.job["queued_at"] or facts.job["created_at"]))
    return f"queued for {waited}, {_place(facts)}{_nobody(facts) or '; the next free worker takes it in its turn'}"


def _place(facts: Facts) -> str:
    before = facts.hold["goes_first"]
    if before == 0:
        return "the first in the queue"
    return f"{before} or more jobs before it" if before >= COUNTED else f"{counted(before, 'job')} before it"


def _nobody(facts: Facts) -> str:
    """Why no worker will come for it; empty where one will."""
    if facts.hold["active_servers"] == 0:
        return f"; {NOBODY}"
    if facts.held_here and facts.hold["active_here"]:
        others = facts.hold["active_servers"] > facts.hold["active_here"]
        left = "others take it in its turn" if others else "`convertq doctor` has the remedy"
        return f"; this host claims nothing: {facts.held_here}; {left}"
    return ""


def _held(facts: Facts) -> str:
    hold = facts.hold
    since = facts.at(hold["opened_at"])
    if hold["by_hand"]:
        return f"held: the breaker was opened by hand at {since}; `convertq breaker close` lets jobs through"
    if hold["breaker"] == "half_open":
        return f"held: the breaker is open since {since} and tries the gateway with one job now"
    probe = f"at {facts.at(hold['probe_after'])}" if hold["probe_after"] else "soon"
    return f"held: the breaker is open since {since}; the gateway is tried again {probe}"


def _processing(facts: Facts) -> str:
    job = facts.job
    since = f", since {facts.at(job['last_attempt_at'])}" if job["last_attempt_at"] else ""
    sentence = f"being converted by {job['leased_by']}, {facts.attempts}{since}"
    if loss := _loss(facts):
        return f"was {sentence}; {loss}, {_taken_back(facts)}"
    if progress := job["progress"]:
        sentence += f": {progress['step']}, {progress['percent']}%"
    return f"{sentence}{_time_left(facts)}"


def _time_left(facts: Facts) -> str:
    began = facts.job["last_attempt_at"]
    if not began:
        return ""
    ends = began + facts.gateway_timeout
    if ends > facts.now:
        return f"; the gateway has until {facts.at(ends)}"
    at_last = ends + timedelta(seconds=STUCK_AFTER)
    return f"; the gateway's time was over at {facts.at(ends)}: a worker that is stuck is ended at {facts.at(at_last)}"


def _loss(facts: Facts) -> str:
    """How the job's worker was lost; empty while there is no sign of it."""
    job, silent = facts.job, facts.hold["holder_silent"]
    if job["lease_expires_at"] < facts.now:
        return f"its lease ran out at {facts.at(job['lease_expires_at'])}"
    if facts.hold["holder_status"] in ("stopped", "dead"):
        return f"that server is {facts.hold['holder_status']}"
    if silent is not None and silent > facts.heartbeat_timeout:
        return f"that server was last heard {duration(silent)} ago"
    return ""


def _taken_back(facts: Facts) -> str:
    if facts.hold["active_servers"] == 0:
        return f"and {NOBODY}"
    return "so any worker gives it back soon, and `convertq reclaim` at once"


def _complete(facts: Facts) -> str:
    job = facts.job
    done = f"complete since {facts.at(job['completed_at'])}"
    if job["result_path"] is None:
        return f"{done}, but its result has expired: submit the file again"
    if not facts.has_result:
        return f"{done}, but its result is not in this host's RESULTS_DIR: name the right one, or submit the file again"
    kept = f", kept until {facts.at(job['expires_at'])}" if job["expires_at"] else ""
    return f"{done}{kept}: `convertq result {job['id']}`"


def _failed(facts: Facts) -> str:
    job = facts.job
    why = f"{job['error_code']}: {job['error_message'] or 'no reason is recorded'}"
    if job["error_code"] in (Code.NOT_PDF, Code.TOO_LARGE):
        return f"refused: {why}; nothing of it is stored"
    how = f"given up after {facts.attempts}" if job["dead_letter"] else f"failed in {facts.attempts}"
    if not facts.has_source:
        return f"{how}: {why}; its source is gone: submit the file again"
    return f"{how}: {why}; `convertq retry {job['id']}` queues it again"


SENTENCES = {
    "uploaded": _uploaded,
    "queued": _queued,
    "processing": _processing,
    "complete": _complete,
    "failed": _failed,
}


def last_error(events: Sequence[Row]) -> str:
    """Why the last attempt did not succeed; the row itself has it only once the job has failed."""
    return last_in_meta(events, "error_message") or "the reason is no longer recorded"


def last_in_meta(events: Sequence[Row], name: str) -> str | None:
    return next((str(event["meta"][name]) for event in reversed(events) if event["meta"].get(name)), None)
