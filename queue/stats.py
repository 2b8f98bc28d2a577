"""The figures of the queue as a whole: its depth, throughput, errors, gateway times, breaker and servers."""

from __future__ import annotations

from typing import Any

from convertq.queue.breaker_state import get_breaker
from convertq.queue.config import Config
from convertq.queue.counters import Counters
from convertq.queue.database.database import Database
from convertq.queue.servers import count_servers
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow

MEASURED_CALLS = 1000


def get_stats(database: Database, config: Config) -> dict[str, Any]:
    """Its keys are public: `convertq stats --json` prints them, and the operator's API sends them."""
    counters = Counters(database)
    outcomes = database.run("count_outcomes")[0]
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
        "gateway_seconds": dict(database.run("get_gateway_times", calls=MEASURED_CALLS)[0]),
        "errors_24h": {row["code"]: row["jobs"] for row in database.run("count_errors")},
        "totals": {
            "created": counters("jobs_created"),
            "completed": counters("jobs_completed"),
            "failed": sum(counters.by_label("jobs_failed").values()),
            "retries": counters("retries"),
        },
        "breaker": get_breaker(database, config),
        "servers": count_servers(database, config),
    }


def get_queue_age(database: Database) -> float | None:
    """For how many seconds the first job of the queue has waited; None while the queue is empty."""
    seconds: float | None = database.run("get_queue_age")[0]["seconds"]
    return seconds


def count_last_outcomes(database: Database) -> DictRow:
    """now, completed_10s, completed_60s, failed_60s."""
    return database.run("count_last_outcomes")[0]
