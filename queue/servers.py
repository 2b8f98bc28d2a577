"""The registered supervisors, and the jobs that their workers have leased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from convertq.queue.config import Config
from convertq.queue.database.database import Database


class ServerStatus(StrEnum):
    """The members are in the order in which a server passes through them; their values are those of the table."""

    ACTIVE = "active"
    DRAINING = "draining"
    STOPPED = "stopped"
    DEAD = "dead"


#: A server in one of these states has workers; one in another state has ended.
RUNNING = (ServerStatus.ACTIVE, ServerStatus.DRAINING)
ENDED = (ServerStatus.STOPPED, ServerStatus.DEAD)
SHOW_ENDED_SECONDS = 600  # after the last heartbeat of a server that has ended
#: What a server is called that has leased a job and has no row.
UNREGISTERED = "unregistered"
#: What is not known of a server that has leased a job and has no row.
UNKNOWN = dict.fromkeys(
    ("hostname", "pid", "version", "environment", "concurrency", "started_at", "last_heartbeat_at", "stopped_at",
     "up_seconds", "heartbeat_seconds")
)  # fmt: skip


def get_servers(database: Database, config: Config) -> list[dict[str, Any]]:
    """Each server with the jobs that it works on."""
    rows = database.run("list_servers", heartbeat_timeout=config.worker_heartbeat_timeout_sec)
    servers: dict[str, dict[str, Any]] = {row["id"]: {**row, "jobs": []} for row in rows}
    for job in database.run("list_running_jobs"):
        holder = job.pop("server")
        unregistered = {"id": holder, **UNKNOWN, "status": UNREGISTERED, "jobs": []}
        servers.setdefault(holder, unregistered)["jobs"].append(
            {"slot": job.pop("slot"), "job_id": job.pop("id"), **job}
        )
    return list(servers.values())


def is_shown(server: Mapping[str, Any]) -> bool:
    """Whether a screen shows this row of get_servers: one that ended long ago is shown only while it has a job."""
    return bool(server["jobs"]) or server["status"] in RUNNING or server["heartbeat_seconds"] < SHOW_ENDED_SECONDS


def count_workers(servers: Sequence[Mapping[str, Any]]) -> int:
    """How many worker processes the running ones of these rows of get_servers have."""
    return sum(server["concurrency"] for server in servers if server["status"] in RUNNING)


def count_servers(database: Database, config: Config) -> dict[str, int]:
    """Servers by status, and as `workers` how many worker processes the active ones run."""
    rows = database.run("count_servers", heartbeat_timeout=config.worker_heartbeat_timeout_sec)
    by_status = {row["status"]: row for row in rows}
    workers = int(by_status[ServerStatus.ACTIVE]["workers"])
    return {**{status: row["servers"] for status, row in by_status.items()}, "workers": workers}


def prune_servers(database: Database) -> int:
    """How many servers were removed that had been stopped or dead for a minute and held no job."""
    return len(database.run("prune_servers"))


def mark_all_servers_dead(database: Database) -> int:
    """How many were; for a caller that knows that no server runs. Their jobs are reclaimed by the next one.

    Otherwise the next server would first have to listen for one heartbeat timeout.
    """
    always = datetime(1970, 1, 1, tzinfo=UTC)
    return len(database.run("mark_servers_dead", heartbeat_timeout=0, longest_gap=0, listening_since=always))
