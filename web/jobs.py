"""A visitor's jobs: found, listed, retried; nobody else's are ever looked at beyond whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from convertq.web.asked import LIMIT
from convertq.web.context import web
from convertq.web.job_view import view_event, view_job
from convertq.web.refusal import Refusal, no_such_job, of_another
from convertq.worker.counters import STATUSES
from convertq.worker.db import Database
from convertq.worker.errors import Code
from convertq.worker.job_list import NEWEST, Place
from convertq.worker.manual_retry import retry_job
from convertq.worker.submission import REFUSALS
from psycopg.rows import DictRow


@dataclass(frozen=True)
class Page:
    jobs: Sequence[dict[str, Any]]
    active: int  # the owner's, on every page
    next: UUID | None  # the `before` of the page that follows
    held: bool = False  # by the breaker


def list_jobs(owner: str, status: str | None = None, limit: int = LIMIT, before: UUID | datetime | None = None) -> Page:
    with web().connections.transaction() as database:
        created_at, job_id = find_place(database, before, owner)
        rows = database.run(
            "list_session_jobs", owner=owner, statuses=[status] if status else list(STATUSES),
            before_created_at=created_at, before_id=job_id, limit=limit + 1,
            heartbeat_timeout=web().config.worker_heartbeat_timeout_sec,
        )  # fmt: skip
    found = [row for row in rows if row["id"] is not None]
    shown = [view_job(row, row, web().config, web().files) for row in found[:limit]]
    following = shown[-1]["id"] if len(found) > limit else None
    return Page(shown, rows[0]["active"], following, held=rows[0]["breaker"] != "closed")


def find_place(database: Database, before: UUID | datetime | None, owner: str | None = None) -> Place:
    """Where a page begins; with an owner, only that owner's jobs are places."""
    if before is None:
        return NEWEST
    if isinstance(before, datetime):
        return before, UUID(int=2**128 - 1)
    return find_created(database, before, owner), before


def find_created(database: Database, job_id: UUID, owner: str | None) -> datetime:
    """When it was created, if it is this owner's. What is asked of the database is the same for every job."""
    found = database.one("find_owner", id=job_id)
    if found is None:
        raise no_such_job()
    if owner is not None and found["owner"] != owner:
        raise of_another()
    created_at: datetime = found["created_at"]
    return created_at


def check_owner(database: Database, owner: str, job_id: UUID) -> None:
    """Raises the Refusal of a job that is not there, or not this owner's."""
    find_created(database, job_id, owner)


def find_row(database: Database, owner: str, job_id: UUID) -> DictRow:
    check_owner(database, owner, job_id)
    return database.run("get_session_job", id=job_id)[0]


def find_hold(database: Database) -> DictRow:
    return database.run("get_hold", heartbeat_timeout=web().config.worker_heartbeat_timeout_sec)[0]


def find_job(owner: str, job_id: UUID) -> dict[str, Any]:
    with web().connections.transaction() as database:
        row = find_row(database, owner, job_id)
        hold = find_hold(database)
    return view_job(row, hold, web().config, web().files)


def list_events(owner: str, job_id: UUID) -> list[dict[str, Any]]:
    with web().connections.transaction() as database:
        check_owner(database, owner, job_id)
        events = database.run("list_events", id=job_id)
    return [view_event(event) for event in events]


def retry(owner: str, job_id: UUID) -> dict[str, Any]:
    """The job, queued again; 409 unless it is failed and its source is there."""
    with web().connections.transaction() as database:
        check_owner(database, owner, job_id)
        queued = retry_job(database, web().files, job_id)
        row = database.run("get_session_job", id=job_id)[0]
        hold = find_hold(database)
    if not queued:
        raise _why_not(row)
    return view_job(row, hold, web().config, web().files)


def _why_not(job: DictRow) -> Refusal:
    if job["status"] != "failed":
        return Refusal(409, f"the job is {job['status']}; only failed jobs are retried", Code.NOT_READY)
    if job["error_code"] in REFUSALS:
        return Refusal(409, "the file was refused, and nothing of it is stored", Code(job["error_code"]))
    return Refusal(409, "the uploaded file is no longer kept: upload it again", Code.EXPIRED)
