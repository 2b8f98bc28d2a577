"""What `convertq stats` and the pages show: the queue, its pace, its errors, the gateway, the breaker, the servers."""

from __future__ import annotations

from typing import Any

from convertq.worker.config import Config
from convertq.worker.counters import STATUSES, Counters
from convertq.worker.db import Database

LAST_CALLS = 1000
SHOWN_FAILURES = 5
#: what is not known of a server that holds a job and has no row
UNKNOWN = dict.fromkeys(
    ("hostname", "pid", "version", "environment", "concurrency", "started_at", "last_heartbeat_at", "stopped_at",
     "up_seconds", "heartbeat_seconds")
)  # fmt: skip


def get_stats(database: Database, config: Config) -> dict[str, Any]:
    """Its keys are a promise: they are printed as JSON."""
    counters = Counters(database)
    outcomes = database.run("count_outcomes")[0]
    ended = outcomes["completed_60m"] + outcomes["failed_60m"]
    return {
        "jobs": {status: counters("jobs", status) for status in STATUSES},
        "oldest_queued_seconds": database.run("get_queue_age")[0]["seconds"],
        "completed_per_minute": {
            "1m": float(outcomes["completed_1m"]),
            "5m": outcomes["completed_5m"] / 5,
            "60m": outcomes["completed_60m"] / 60,
        },
        "completed_60m": outcomes["completed_60m"],
        "failed_60m": outcomes["failed_60m"],
        "success_rate": outcomes["completed_60m"] / ended if ended else None,
        "gateway_seconds": dict(database.run("get_gateway_times", calls=LAST_CALLS)[0]),
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


def get_breaker(database: Database, config: Config) -> dict[str, Any]:
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
    """With the last calls that failed."""
    failures = database.run("list_failed_calls", window=config.circuit_window, limit=SHOWN_FAILURES)
    return {**get_breaker(database, config), "last_failures": failures}


def get_servers(database: Database, config: Config) -> list[dict[str, Any]]:
    """Each with the jobs that it works on."""
    rows = database.run("list_servers", heartbeat_timeout=config.worker_heartbeat_timeout_sec)
    found: dict[str, dict[str, Any]] = {row["id"]: {**row, "jobs": []} for row in rows}
    for job in database.run("list_running_jobs"):
        holder = job.pop("server")
        nobody = {"id": holder, **UNKNOWN, "status": "unregistered", "jobs": []}
        found.setdefault(holder, nobody)["jobs"].append({"slot": job.pop("slot"), "job_id": job.pop("id"), **job})
    return list(found.values())


def count_servers(database: Database, config: Config) -> dict[str, int]:
    rows = database.run("count_servers", heartbeat_timeout=config.worker_heartbeat_timeout_sec)
    found = {row["status"]: row for row in rows}
    return {**{status: row["servers"] for status, row in found.items()}, "workers": int(found["active"]["workers"])}
