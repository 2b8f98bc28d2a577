"""The adaptive limits of gateways in the database: what hosts have measured, decisions, and how they are explained.

Each supervisor reports what its workers have measured, and whichever comes first decides, once a second at most. Claims
read the limit where they read a fixed one, so a decision is in force for every claim that begins after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from convertq.queue.adaptive_limit import AdaptiveLimit, Reason, Sample
from convertq.queue.database.database import Database
from convertq.queue.quantities import counted
from convertq.queue.queue_events import QueueEventType, record
from psycopg.rows import DictRow

#: Between two decisions; the supervisors' loops add up to half a second.
DECIDE_EVERY_SECONDS = 0.8
#: An event is recorded when the limit differs from the last recorded one by so much, and by two calls,
NOTABLE_SHARE = 0.25
#: or when the reason is another one. The next event follows after so many seconds at the earliest.
EVENT_EVERY_SECONDS = 10.0


def keep_up_limits(database: Database, measured: Mapping[str, Sample]) -> None:
    """Called once a second by every supervisor, for its gateways whose limit is adaptive: what its workers have
    measured since the last call, by the name of the gateway."""
    if any(sample.ended for sample in measured.values()):
        _report(database, measured)
    with database.transaction():
        for row in database.run("lock_limits", gateways=list(measured), pause=DECIDE_EVERY_SECONDS):
            _decide(database, row)


def _report(database: Database, measured: Mapping[str, Sample]) -> None:
    rows = [{"gateway": name, "numbers": sample.numbers} for name, sample in measured.items() if sample.ended]
    database.run("report_calls", measured=json.dumps(rows))


def _decide(database: Database, row: DictRow) -> None:
    limit = AdaptiveLimit.load(row["state"]) if row["state"] else AdaptiveLimit(limit=row["max_calls"])
    sample = Sample()
    for report in database.run("take_measured_calls", gateway=row["gateway"]):
        sample.add(Sample.from_row(report["numbers"]))
    limit.decide(sample, in_use=row["in_use"], most=row["most_calls"], now=row["now"])
    database.run(
        "set_limit", gateway=row["gateway"], max_calls=limit.max_calls, state=json.dumps(limit.dump()),
        reason=limit.reason,
    )  # fmt: skip
    if _is_notable(row, limit):
        _record(database, row, limit)


def _is_notable(row: Mapping[str, Any], limit: AdaptiveLimit) -> bool:
    """A probe is not notable: it lasts a moment, and the limit from before it follows."""
    if limit.limit_before_probe is not None:
        return False
    if row["recorded_seconds"] is not None and row["recorded_seconds"] < EVENT_EVERY_SECONDS:
        return False
    recorded = row["recorded_calls"] or row["max_calls"]
    difference = abs(limit.max_calls - recorded)
    return difference >= max(2, NOTABLE_SHARE * recorded) or limit.reason != (row["recorded_reason"] or Reason.NEW)


def _record(database: Database, row: Mapping[str, Any], limit: AdaptiveLimit) -> None:
    record(
        database, QueueEventType.LIMIT_CHANGED, gateway=row["gateway"], max_calls=limit.max_calls,
        most_calls=row["most_calls"], before=row["recorded_calls"] or row["max_calls"],
        reason=describe_reason(limit.reason, limit.ratio, limit.refused),
    )  # fmt: skip
    database.run("mark_limit_recorded", gateway=row["gateway"])


# -- in words --


def describe_reason(reason: str, ratio: float, refused: float) -> str:
    match Reason(reason):
        case Reason.NEW:
            return "no call is measured yet"
        case Reason.GROWING:
            return "growing: calls take no longer than usual"
        case Reason.WORKERS:
            return "a call for each worker: calls take no longer than usual"
        case Reason.LATENCY:
            return f"latency {ratio:.1f}×"
        case Reason.REFUSED:
            return f"{counted(int(refused), 'call')} refused or timed out"


def view_limit(row: Mapping[str, Any]) -> dict[str, Any]:
    """The public keys of a row of list_breakers or get_prospects; null unless the limit is adaptive."""
    state = row["limit_state"] or {}
    reason = row["reason"] and describe_reason(row["reason"], state.get("ratio", 1.0), state.get("refused", 0.0))
    return {
        "most_calls": row["most_calls"],
        "limit_reason": reason,
        "limit_since": row["reason_since"],
        "limit_seconds": row["reason_seconds"],
    }


def describe_limit(view: Mapping[str, Any], since: str) -> str:
    """`view` has max_calls and the keys of view_limit; `since` says when its reason began, as this reader sees it."""
    return f"limit {view['max_calls']} of {view['most_calls']}: {view['limit_reason']} {since}"
