"""Whether an outage has cost an attempt: where the faults of the storm allow an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.chaos.faults import Injected
from tests.chaos.history import gives_attempt_back
from tests.chaos.plan import HEARTBEAT_TIMEOUT_SECONDS, Kind
from tests.waiting import Row

#: In these nobody was heard for longer than the heartbeat timeout.
SILENCED = {Kind.OUTAGE, Kind.FREEZE, Kind.SWALLOW_ALL, Kind.STALL_STANDBY}
#: Only these may cost a host the jobs that it has not finished. On top of them nobody can tell what else did.
COSTS_ITS_HOST_JOBS = {
    Kind.KILL_WORKER,
    Kind.KILL_SUPERVISOR,
    Kind.PAUSE_WORKER,
    Kind.PAUSE_WORKER_PAST_LEASE,
    Kind.PAUSE_SUPERVISOR,
    Kind.PAUSE_HOST,
    Kind.REFUSE,
    Kind.STALL,
    Kind.SWALLOW,
}
LOSSES = {"reclaimed", "requeued", "failed"}
#: Reasons of a loss by an outage that was too long for a lease of the storm, in the words of any statement.
BY_THE_LEASE = "lease"
TOLERANCE_SECONDS = 1.0  # between the end of a fault and the note of it


def marked_dead_too_soon(servers: Sequence[Row], injected: Sequence[Injected]) -> Iterator[str]:
    """Silence counts only while the database could have heard: for one heartbeat timeout after it is back."""
    outages = [each for each in injected if each.fault.kind in SILENCED]
    for server in servers:
        for outage in outages if server["status"] == "dead" else ():
            after = server["stopped_at"].timestamp() - outage.ended
            if -TOLERANCE_SECONDS < after < HEARTBEAT_TIMEOUT_SECONDS - TOLERANCE_SECONDS:
                yield f"server {server['id']} was marked dead {after:.1f} s after the end of [{outage.fault.kind}]"


def lost_without_a_cause(
    events: Sequence[Row], injected: Sequence[Injected], host_of: Callable[[int], int | None]
) -> Iterator[str]:
    """Counted attempts that were lost although nothing happened to their host that costs jobs."""
    for number, event in enumerate(events):
        if event["event_type"] not in LOSSES or not _is_counted(events, number):
            continue
        begun = max(each["at"] for each in events[:number] if each["event_type"] == "processing").timestamp()
        host = host_of(int(event["meta"]["worker"].split(":")[1]))
        if not any(_may_explain(each, host, begun, event["at"].timestamp()) for each in injected):
            yield f"lost its attempt {event['meta'].get('attempt')}, and nothing had struck its host: {event['meta']}"


def _is_counted(events: Sequence[Row], number: int) -> bool:
    """Lost with a worker, not by the lease; and the attempt that follows has the next number.

    A job that was cancelled before its next attempt has none: then the reason tells.
    """
    meta = events[number]["meta"]
    if "worker" not in meta or "gateway_ok" in meta or BY_THE_LEASE in str(meta.get("reason", BY_THE_LEASE)):
        return False
    later = [event["meta"]["attempt"] for event in events[number:] if event["event_type"] == "processing"]
    return later[0] > meta["attempt"] if later else not gives_attempt_back(events[number])


def _may_explain(fault: Injected, host: int | None, begun: float, lost: float) -> bool:
    if fault.fault.kind not in COSTS_ITS_HOST_JOBS or host not in (None, fault.fault.host):
        return False
    return fault.began - TOLERANCE_SECONDS < lost and begun < fault.ended + 2 * HEARTBEAT_TIMEOUT_SECONDS
