"""The circuit breaker as an operator sees it and moves it by hand."""

from __future__ import annotations

from typing import Any

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from psycopg.rows import DictRow

SHOWN_FAILURES = 5


def get_breaker(database: Database, config: Config) -> dict[str, Any]:
    """Its keys are public: they are printed and sent as JSON."""
    row = database.run("get_breaker", window=config.circuit_window)[0]
    return {
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
    }


def describe_breaker(database: Database, config: Config) -> dict[str, Any]:
    """As get_breaker, with the last gateway calls that failed."""
    failures = database.run("list_failed_calls", window=config.circuit_window, limit=SHOWN_FAILURES)
    return {**get_breaker(database, config), "last_failures": failures}


def open_breaker_by_hand(database: Database) -> DictRow | None:
    """`came_from`: the state before; None when it was open by hand already."""
    return database.one("open_breaker_by_hand")


def close_breaker_by_hand(database: Database) -> DictRow | None:
    """`seconds`: for how long it was open; None when it was closed already."""
    return database.one("close_breaker_by_hand")


#: What an operator can do, by its name in the command and in the API. Each returns None when nothing changed.
ACTIONS = {"open": open_breaker_by_hand, "close": close_breaker_by_hand}
