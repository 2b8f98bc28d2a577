"""The figures of the queue as a whole: its depth, throughput, errors, gateway times, breaker and servers."""

from __future__ import annotations

from typing import Any

from convertq.queue.breaker_state import get_breakers, worst_of
from convertq.queue.config import Config
from convertq.queue.counters import Counters
from convertq.queue.database.database import Database
from convertq.queue.pauses import list_pauses
from convertq.queue.servers import count_servers
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow

MEASURED_CALLS = 1000


def get_stats(database: Database, config: Config) -> dict[str, Any]:
    """Its keys are public: `convertq stats --json` prints them, and the operator's API sends them."""
    with database.transaction():
        database.run("use_generic_plans")
        return _read_stats(database, config)


def _read_stats(database: Database, config: Config) -> dict[str, Any]:
    counters = Counters(database)
    first_event = database.run("get_first_event")[0]["first_event"]
    outcomes = database.run("count_outcomes", first_event=first_event)[0]
    breakers = get_breakers(database, config, first_event)
    ended = outcomes["completed_60m"] + outcomes["failed_60m"]
    return {
        "jobs": {status: counters("jobs", status) for status in JobStatus},
        "oldest_queued_seconds": get_queue_age(database),
        "completed_per_minute": {
            "1m": float(outcomes["completed_1m"]),
            "5m": outcomes["completed_5m"] / 5,
            "60m": outcomes["completed_60m"] / 60,
        },
        "completed_60m": outcomes["completed_60m"],
        "failed_60m": outcomes["failed_60m"],
        "success_rate": outcomes["completed_60m"] / ended if ended else None,
        "gateway_seconds": get_gateway_times(database, first_event),
        "errors_24h": {row["code"]: row["jobs"] for row in database.run("count_errors", first_event=first_event)},
        "totals": {
            "created": counters("jobs_created"),
            "completed": counters("jobs_completed"),
            "failed": sum(counters.by_label("jobs_failed").values()),
            "cancelled": counters("jobs_cancelled"),
            "retries": counters("retries"),
        },
        "breaker": worst_of(breakers),
        "gateways": breakers,
        "servers": count_servers(database, config),
        "pauses": list_pauses(database),
    }


def get_gateway_times(database: Database, first_event: int) -> dict[str, Any]:
    """Events before first_event are read only if there are too few calls without them."""
    row = database.run("get_gateway_times", calls=MEASURED_CALLS, first_event=first_event)[0]
    if first_event and not row["are_enough"]:
        row = database.run("get_gateway_times", calls=MEASURED_CALLS, first_event=0)[0]
    return {name: row[name] for name in ("calls", "p50", "p95", "p99")}


def get_queue_age(database: Database) -> float | None:
    """For how many seconds the first job of the queue has waited; None while the queue is empty."""
    seconds: float | None = database.run("get_queue_age")[0]["seconds"]
    return seconds


def count_last_outcomes(database: Database) -> DictRow:
    """now, completed_10s, completed_60s, failed_60s."""
    return database.run("count_last_outcomes")[0]
