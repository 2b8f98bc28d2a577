"""The circuit breakers of the gateways as an operator sees them and moves them by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.limits import view_limit
from convertq.queue.queue_events import Operator, record_operator
from psycopg.rows import DictRow

SHOWN_FAILURES = 5
#: From the worst to the best.
STATES = ("open", "half_open", "closed")


def get_breakers(database: Database, config: Config, first_event: int = 0) -> dict[str, dict[str, Any]]:
    """By the name of the gateway. The keys of each are public: they are printed and sent as JSON.

    Events before first_event are read only if a window is not complete without them.
    """
    given = {"gateways": config.gateway_names, "window": config.circuit_window}
    rows = database.run("list_breakers", **given, first_event=first_event)
    if first_event and not all(row["are_enough"] for row in rows):
        rows = database.run("list_breakers", **given, first_event=0)
    return {row["gateway"]: _view(row, config) for row in rows}


def _view(row: DictRow, config: Config) -> dict[str, Any]:
    return {
        "gateway": row["gateway"],
        "state": row["state"],
        "by_hand": row["by_hand"],
        "opened_at": row["opened_at"],
        "open_seconds": row["seconds"],
        "open_seconds_total": row["open_seconds_total"],
        "next_probe_seconds": row["probe_seconds"],
        "probe_by": row["probe_by"],
        "trial_job": row["trial_job"],
        "calls": row["calls"],
        "failures": row["failures"],
        "window": config.circuit_window,
        "threshold": config.circuit_fail_threshold,
        "max_calls": row["max_calls"],
        "running_calls": row["slots_taken"] if row["max_calls"] else None,
        **view_limit(row),
    }


def worst_of(breakers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The first of those that are worst off."""
    return dict(min(breakers.values(), key=lambda breaker: (STATES.index(breaker["state"]), not breaker["by_hand"])))


def describe_breaker(database: Database, config: Config, gateway: str | None = None) -> dict[str, Any]:
    """That of the gateway, or the worst one, with the last calls that failed; and as `gateways` each of them."""
    breakers = get_breakers(database, config)
    chosen = dict(breakers[gateway]) if gateway else worst_of(breakers)
    failures = database.run(
        "list_failed_calls", gateway=chosen["gateway"], window=config.circuit_window, limit=SHOWN_FAILURES
    )
    shown = {gateway: breakers[gateway]} if gateway else breakers
    return {**chosen, "last_failures": failures, "gateways": shown}


#: What an operator can do, by its name in the command and in the API: the statement that does it.
ACTIONS = {"open": "open_breaker_by_hand", "close": "close_breaker_by_hand"}


def move_breakers(database: Database, action: str, gateways: Sequence[str], operator: Operator) -> list[DictRow]:
    """Those that have changed: `gateway`, and of `open` the state before as `came_from`, of `close` for how long it was
    open as `seconds`."""
    with database.transaction():
        changes = database.run(ACTIONS[action], gateways=list(gateways))
        for change in changes:
            record_operator(database, operator, f"breaker {action}", gateway=change["gateway"])
    return changes
