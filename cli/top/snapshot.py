"""What `convertq top` shows of the queue: a few statements, each of which stays cheap with a million jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convertq.queue.breaker_state import get_breakers, worst_of
from convertq.queue.config import Config
from convertq.queue.counters import Counters
from convertq.queue.database.database import Database
from convertq.queue.explain import State
from convertq.queue.jobs import list_last_errors
from convertq.queue.pauses import list_pauses
from convertq.queue.servers import count_workers, get_servers, is_shown
from convertq.queue.stats import count_last_outcomes, get_queue_age
from convertq.queue.status import JobStatus

Row = dict[str, Any]
STATUSES = (
    JobStatus.QUEUED, JobStatus.PROCESSING, JobStatus.FAILED, JobStatus.UPLOADED, JobStatus.COMPLETE,
    JobStatus.CANCELLED,
)  # fmt: skip
MAX_ERRORS = 50  # `convertq list` shows more
#: The filters of the list of errors, and the states that each shows.
ERROR_STATES: dict[str, list[State]] = {
    "all": [State.FAILED, State.RETRYING],
    State.FAILED: [State.FAILED],
    State.RETRYING: [State.RETRYING],
}


@dataclass(frozen=True)
class Snapshot:
    """Times are by the database's clock. `servers` are rows of get_servers, `errors` of list_last_errors."""

    now: datetime
    jobs: Mapping[str, int]
    oldest_queued_seconds: float | None
    completed_10s: int
    completed_60s: int
    failed_60s: int
    breaker: Row  # of the gateway that is worst off
    gateways: dict[str, dict[str, Any]]
    servers: Sequence[Row]
    errors: Sequence[Row]
    pauses: Sequence[Row] = ()

    @property
    def rate(self) -> float:
        """Completed jobs a second, averaged over the last ten seconds."""
        return self.completed_10s / 10

    @property
    def workers(self) -> list[Row]:
        """The workers that have a job: the job, and the name of the worker."""
        return [
            {**job, "worker": worker(server["id"], job["slot"]), "server_status": server["status"]}
            for server in self.servers
            for job in server["jobs"]
        ]

    @property
    def slots(self) -> int:
        return count_workers(self.servers)


@dataclass(frozen=True)
class DatabaseProblem:
    """What is published instead of a snapshot when the database cannot be read."""

    what: str
    reason: str


def worker(server_id: str, slot: str) -> str:
    """The name of a worker without the random part of its server's id: an operator knows it by host and pid."""
    return f"{server_id.rpartition(':')[0] or server_id}/{slot}"


def take_snapshot(database: Database, config: Config, shows: str = "all") -> Snapshot:
    """Raises psycopg.Error."""
    outcomes = count_last_outcomes(database)
    counters = Counters(database)
    return Snapshot(
        **outcomes,
        jobs={status: counters("jobs", status) for status in STATUSES},
        oldest_queued_seconds=get_queue_age(database),
        breaker=worst_of(gateways := get_breakers(database, config)),
        gateways=gateways,
        servers=[server for server in get_servers(database, config) if is_shown(server)],
        errors=list_last_errors(database, ERROR_STATES[shows], MAX_ERRORS),
        pauses=list_pauses(database),
    )


def as_document(snapshot: Snapshot) -> dict[str, Any]:
    """What `--once --json` prints."""
    return {**vars(snapshot), "completed_per_second": snapshot.rate}
