"""The facts from which a job's state is explained."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from convertq.queue.artifact import list_artifacts
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.errors import StorageError
from convertq.queue.estimates import Estimate, estimate_jobs
from convertq.queue.jobs import get_job, get_statuses, list_events
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import Store
from psycopg.rows import DictRow

Row = Mapping[str, Any]


class LastError(NamedTuple):
    """The error of the last attempt that failed. The job's row has it only once the job itself has failed."""

    code: str | None
    message: str | None


@dataclass(frozen=True)
class Facts:
    """An operator's facts have every field; of an owner's job, those that the owner may not see keep their default."""

    job: Row
    queue: Row  # of get_queue_state, or of get_prospects, which has more
    max_attempts: int
    last_error: LastError | None = None
    needed: Sequence[Row] = ()  # unfinished dependencies: id, status
    must_wait: bool = False  # another job must be complete before this one may be started over
    has_dependencies: bool = False
    has_source: bool = True
    result_is_recorded: bool = True
    has_result: bool = True  # it can be read here
    events: Sequence[Row] = ()
    artifacts: Sequence[Row] = ()
    heartbeat_timeout_seconds: float = 40
    gateway_timeout: timedelta = timedelta(minutes=3)
    paused_here: str = ""  # why this host claims nothing
    is_paused: bool = False  # its gateway or its owner is paused by hand
    is_limited: bool = False  # its owner has as many running jobs as OWNER_MAX_RUNNING allows
    position: int | None = None  # of a queued job, counted from 1
    estimate: Estimate | None = None

    @property
    def now(self) -> datetime:
        """The time of the database's clock when the job was read."""
        now: datetime = self.job["now"]
        return now

    @property
    def has_workers(self) -> bool:
        return bool(self.queue["active_servers"] > 0)


def gather_facts(database: Database, config: Config, store: Store, job_id: UUID) -> Facts | None:
    """Everything that an operator may know of the job; None when it does not exist."""
    job = get_job(database, job_id)
    if job is None:
        return None
    needed = list(get_statuses(database, job["waits_for"]).values())
    prospects = _get_prospects(database, config, job_id)
    events = list_events(database, job_id)
    outlook = estimate_jobs(database, config, [job_id])
    return Facts(
        job=job,
        queue=prospects,
        max_attempts=config.retry_max_attempts,
        last_error=_last_error(events),
        needed=needed,
        must_wait=bool(needed),
        has_dependencies=_has_dependencies(database, job),
        has_source=_has_source(store, job),
        result_is_recorded=job["result_path"] is not None,
        has_result=_has_result(store, job),
        events=events,
        artifacts=list_artifacts(database, job_id),
        heartbeat_timeout_seconds=config.worker_heartbeat_timeout_sec,
        gateway_timeout=timedelta(milliseconds=_timeout_ms(config, job["route"])),
        paused_here=store.reason_to_pause(),
        is_paused=prospects["paused_at"] is not None,
        is_limited=prospects["is_limited"],
        position=outlook.positions.get(job_id),
        estimate=outlook.estimates.get(job_id),
    )


def facts_for_owner(job: Row, queue: Row, config: Config, store: Store) -> Facts:
    """`job` is a row of list_session_jobs or get_session_job, `queue` one of get_queue_state.

    The store is checked only where the state depends on it, and never over the network: a page shows many jobs.
    """
    status, last, location = job["status"], job["last_error"], job["result_path"]
    return Facts(
        job=job,
        queue=queue,
        max_attempts=config.retry_max_attempts,
        last_error=LastError(last["code"], last["message"]) if last else None,
        must_wait=job["waits"],
        is_paused=job["is_paused"],
        is_limited=job["is_limited"],
        has_source=bool(
            status in (JobStatus.FAILED, JobStatus.CANCELLED)
            and job["has_source"]
            and (store.is_remote or store.has_source(job["id"]))
        ),
        result_is_recorded=location is not None,
        has_result=status == JobStatus.COMPLETE
        and (location is not None if store.is_remote else store.has_result(job["id"], location)),
    )


def _timeout_ms(config: Config, gateway: str) -> int:
    named = (each.timeout_ms for each in config.gateways if each.name == gateway)
    return next(named, None) or config.gateway_timeout_ms


def _has_source(store: Store, job: Row) -> bool:
    """While the storage cannot be reached, the row counts."""
    try:
        return store.has_source(job["id"])
    except StorageError:
        return job["upload_path"] is not None


def _has_result(store: Store, job: Row) -> bool:
    try:
        return store.has_result(job["id"], job["result_path"])
    except StorageError:
        return job["result_path"] is not None


def _get_prospects(database: Database, config: Config, job_id: UUID) -> DictRow:
    return database.run(
        "get_prospects",
        id=job_id,
        heartbeat_timeout=config.worker_heartbeat_timeout_sec,
        hostname=socket.gethostname(),
    )[0]


def _has_dependencies(database: Database, job: Row) -> bool:
    return bool(job["status"] == JobStatus.UPLOADED and database.run("has_dependencies", id=job["id"])[0]["found"])


def _last_error(events: Sequence[Row]) -> LastError | None:
    """As in list_session_jobs: a busy gateway is a reason to wait too, and no failure."""
    for event in reversed(events):
        meta = event["meta"]
        if meta.get("error_message"):
            return LastError(meta.get("error_code"), meta["error_message"])
        if meta.get("reason") == "busy":
            return LastError(None, "the gateway was busy")
    return None
