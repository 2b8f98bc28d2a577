"""What the operators' page shows of the breaker, the servers and the effects of its buttons, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convertq.queue.breaker_state import worst_of
from convertq.queue.limits import describe_limit
from convertq.queue.manual_retry import WHY_SKIPPED
from convertq.queue.pauses import Scope, describe_scope
from convertq.queue.quantities import counted
from convertq.queue.queue_events import QueueEventType, describe
from convertq.queue.servers import RUNNING, UNREGISTERED, ServerStatus, count_workers, is_shown
from convertq.web.wording import span

Row = Mapping[str, Any]

#: How a state of the breaker looks (tone), and the word for it.
BREAKER_STATES = {
    "closed": ("good", "closed: jobs go through"),
    "open": ("warn", "open: the queue is held"),
    "half_open": ("warn", "half open: one job is being tried"),
}
TONES = {
    ServerStatus.ACTIVE: "good",
    ServerStatus.DRAINING: "warn",
    ServerStatus.STOPPED: "",
    ServerStatus.DEAD: "bad",
    UNREGISTERED: "bad",
}
PAGE_EVENTS = 10
EVENT_TONES = {
    QueueEventType.BREAKER_OPENED: "warn",
    QueueEventType.HELD: "bad",
    QueueEventType.PAUSED: "warn",
    QueueEventType.BREAKER_CLOSED: "good",
    QueueEventType.RELEASED: "good",
    QueueEventType.RESUMED: "good",
}


# -- the breaker --


def view_breakers(breakers: Mapping[str, Row]) -> dict[str, Any]:
    """`breakers` is what get_breakers returns. `breaker` is the worst one, with what the buttons do to all of them;
    `gateways` has each of several."""
    worst = view_breaker(worst_of(breakers))
    several = [{"name": name, **view_breaker(each)} for name, each in breakers.items()] if len(breakers) > 1 else []
    if several:
        worst["detail"] = f"{worst_of(breakers)['gateway']}: {worst['detail']}"
        if any(each["open_label"] for each in several):
            worst["open_label"] = worst["open_label"] or "Hold the queue"
    return {"breaker": worst, "gateways": several}


def view_breaker(breaker: Row) -> dict[str, Any]:
    tone, word = BREAKER_STATES[breaker["state"]]
    is_closed = breaker["state"] == "closed"
    return {
        "state": breaker["state"],
        "tone": tone,
        "word": word,
        "detail": (_about_calls(breaker) if is_closed else _about_opening(breaker)) + _about_limit(breaker),
        "open_label": None if breaker["by_hand"] else "Hold the queue" if is_closed else "Keep holding it",
        "can_close": not is_closed,
    }


def _about_calls(breaker: Row) -> str:
    if not breaker["calls"]:
        return "No gateway call is recorded yet."
    return f"{_failed_calls(breaker)}; it opens at {round(100 * breaker['threshold'], 1):g} %."


def _about_limit(breaker: Row) -> str:
    if not breaker["max_calls"]:
        return ""
    calls = f" {breaker['running_calls']} of at most {counted(breaker['max_calls'], 'call')} at a time"
    if not breaker["limit_reason"]:
        return f"{calls}."
    since = f"for {span(breaker['limit_seconds'])}"
    return f"{calls}; {describe_limit(breaker, since)}."


def _about_opening(breaker: Row) -> str:
    since = f"Open for {span(breaker['open_seconds'])}"
    if breaker["by_hand"]:
        return f"{since}, by hand: jobs wait and use up no attempt until it is closed by hand."
    seconds = breaker["next_probe_seconds"] or 0
    probe = f"in {span(seconds)}" if seconds > 0 else "now"
    return f"{since}: {_failed_calls(breaker)}. Jobs wait and use up no attempt; the gateway is tried again {probe}."


def _failed_calls(breaker: Row) -> str:
    return f"{breaker['failures']} of the last {counted(breaker['calls'], 'gateway call')} failed"


# -- the servers --


def view_servers(servers: Sequence[Row]) -> dict[str, Any]:
    """`servers` are the rows of get_servers."""
    shown = [_view_server(server) for server in servers if is_shown(server)]
    workers, busy = count_workers(servers), sum(len(server["jobs"]) for server in servers)
    return {
        "rows": shown,
        "workers": workers,
        "summary": f"{busy} of {counted(workers, 'worker')} busy" if shown else "",
    }


def _view_server(server: Row) -> dict[str, Any]:
    return {
        "id": server["id"],
        "name": f"{server['hostname']}:{server['pid']}" if server["hostname"] else server["id"],
        "status": server["status"],
        "tone": TONES[server["status"]],
        "facts": _facts(server),
        "workers": [_view_worker(slot, job) for slot, job in _slots(server).items()],
    }


def _facts(server: Row) -> list[str]:
    if server["status"] == UNREGISTERED:
        return ["holds a job, but is not registered"]
    facts = [server["environment"], f"version {server['version']}", f"up {span(server['up_seconds'])}"]
    if server["status"] != ServerStatus.STOPPED:
        facts.append(f"last heartbeat {span(server['heartbeat_seconds'])} ago")
    return [fact for fact in facts if fact]


def _slots(server: Row) -> dict[str, Row | None]:
    """All workers of a running server, each with its job; of any other server, those that still have a job. The numbers
    of an elastic pool may have gaps: its free workers get the lowest ones."""
    busy = {str(job["slot"]): job for job in server["jobs"]}
    workers = server["concurrency"] if server["status"] in RUNNING else 0
    numbers = [str(number) for number in range(1, workers + 1)]
    hidden = [number for number in numbers if number not in busy][max(0, workers - len(busy)) :]
    return {**{number: None for number in numbers if number not in hidden}, **busy}


def _view_worker(slot: str, job: Row | None) -> dict[str, Any]:
    """`percent` is None where it is not known."""
    if job is None:
        return {"slot": slot, "job_id": None, "percent": None, "detail": ""}
    step = f"{job['step']}, " if job["step"] else ""
    return {
        "slot": slot,
        "job_id": job["job_id"],
        "percent": job["percent"] if job["step"] else None,
        "detail": f"{step}{span(job['seconds'] or 0)}",
    }


# -- what is paused by hand --


def view_pauses(pauses: Sequence[Row]) -> list[dict[str, Any]]:
    """`pauses` are rows of list_pauses; `scope` is what a request to resume it names."""
    return [
        {
            "what": describe_scope(Scope(pause["gateway"], pause["owner"])),
            "by": pause["by"],
            "at": pause["at"],
            "scope": {name: pause[name] for name in ("gateway", "owner") if pause[name] is not None},
        }
        for pause in pauses
    ]


# -- the log of the queue --


def view_queue_events(events: Sequence[Row]) -> list[dict[str, Any]]:
    """`events` are rows of list_queue_events."""
    return [
        {
            "id": event["id"],
            "at": event["at"],
            "tone": EVENT_TONES.get(event["event_type"], ""),
            "word": event["event_type"].replace("_", " "),
            "detail": describe(event),
        }
        for event in events
    ]


# -- the effects of the buttons --


def describe_retries(queued: int, skipped: int) -> str:
    left = f", {skipped:,} left: no longer failed, {WHY_SKIPPED}" if skipped else ""
    return f"{_jobs(queued)} queued again{left}"


def describe_cancels(cancelled: int, skipped: int) -> str:
    left = f", {skipped:,} left: no longer unfinished" if skipped else ""
    return f"{_jobs(cancelled)} cancelled{left}"


def describe_reclaim(reclaimed: int, given_up: int) -> str:
    return f"{_jobs(reclaimed)} queued again, {given_up:,} given up" if reclaimed or given_up else "No job was lost"


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"
