"""What `convertq top` knows of the queue at one moment: a handful of statements, each cheap beside a million jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convertq.web.history import depth_at_the_end
from convertq.worker.config import Config
from convertq.worker.counters import Counters
from convertq.worker.db import Database
from convertq.worker.stats import get_breaker, get_servers

Row = dict[str, Any]
STATUSES = ("queued", "processing", "failed", "uploaded", "complete")
AT_WORK = ("active", "draining")
ERRORS = 50  # the list can be walked through; who needs more asks `convertq list`
REMEMBERED = 600  # s for which a server that is gone is still shown
ERROR_STATES = {"all": ["failed", "retrying"], "failed": ["failed"], "retrying": ["retrying"]}


@dataclass(frozen=True)
class Snapshot:
    """Times are the database's. The rows: servers as of `convertq servers`, errors as of list_last_errors."""

    now: datetime
    jobs: Mapping[str, int]
    oldest_queued_seconds: float | None
    completed_10s: int
    completed_60s: int
    failed_60s: int
    breaker: Row
    servers: Sequence[Row]
    errors: Sequence[Row]

    @property
    def rate(self) -> float:
        """Completed jobs a second, over the last ten: a single second says little."""
        return self.completed_10s / 10

    @property
    def workers(self) -> list[Row]:
        """Those with a job: the job, and the name of the worker."""
        return [
            {**job, "worker": worker(server["id"], job["slot"]), "server_status": server["status"]}
            for server in self.servers
            for job in server["jobs"]
        ]

    @property
    def slots(self) -> int:
        return sum(server["concurrency"] for server in self.servers if server["status"] in AT_WORK)


@dataclass(frozen=True)
class Trouble:
    """Instead of a snapshot."""

    what: str
    reason: str


def worker(server_id: str, slot: str) -> str:
    """Without the random part of the server's id: host and pid are what an operator looks for."""
    return f"{server_id.rpartition(':')[0] or server_id}/{slot}"


def take_snapshot(database: Database, config: Config, shows: str = "all") -> Snapshot:
    """Raises psycopg.Error."""
    outcomes = database.run("count_last_outcomes")[0]
    counters = Counters(database)
    return Snapshot(
        **outcomes,
        jobs={status: counters("jobs", status) for status in STATUSES},
        oldest_queued_seconds=database.run("get_queue_age")[0]["seconds"],
        breaker=get_breaker(database, config),
        servers=[server for server in get_servers(database, config) if is_of_interest(server)],
        errors=database.run("list_last_errors", states=ERROR_STATES[shows], limit=ERRORS),
    )


def last_minutes(database: Database, minutes: int) -> list[Row]:
    """The present one last: `completed`, and the `depth` at its end."""
    counted = database.run("count_minutes", minutes=minutes)
    depths = depth_at_the_end(database, counted, minutes)
    return [{**row, "depth": depths[row["at"]]} for row in counted]


def is_of_interest(server: Row) -> bool:
    return bool(server["jobs"]) or server["status"] in AT_WORK or server["heartbeat_seconds"] < REMEMBERED


def as_document(snapshot: Snapshot) -> dict[str, Any]:
    """For `--once --json`."""
    return {**vars(snapshot), "completed_per_second": snapshot.rate}
