"""Jobs of any owner, read from the database: one by its id, several by their ids, or a list page by page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from convertq.queue.database.database import Database
from convertq.queue.database.timestamps import AFTER_ALL
from convertq.queue.errors import Code
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow

#: Where a page of a list begins: after the job with this time of creation and this id.
ListPosition = tuple[datetime, UUID]
NEWEST: ListPosition = (AFTER_ALL, UUID(int=0))


def get_job(database: Database, job_id: UUID) -> DictRow | None:
    return database.one("get_job", id=job_id)


def list_events(database: Database, job_id: UUID) -> list[DictRow]:
    return database.run("list_events", id=job_id)


def get_statuses(database: Database, ids: Iterable[UUID]) -> dict[UUID, DictRow]:
    """Status, error and progress of each of these jobs that exists."""
    wanted = list(ids)
    return {row["id"]: row for row in database.run("get_statuses", ids=wanted)} if wanted else {}


def find_missing_jobs(database: Database, ids: Sequence[UUID]) -> list[UUID]:
    known = get_statuses(database, ids)
    return [job_id for job_id in ids if job_id not in known]


def list_jobs(
    database: Database,
    status: str | None,
    owner: str | None,
    code: Code | None,
    limit: int,
    before: ListPosition = NEWEST,
    *,
    dead: bool = False,
) -> list[DictRow]:
    """Newest first; with `dead`, only those that were given up after their last attempt."""
    statuses = [status] if status else [JobStatus.FAILED] if code or dead else list(JobStatus)
    filters: dict[str, Any] = {"statuses": statuses, "error_code": code, "dead_only": dead, "limit": limit}
    filters |= {"before_created_at": before[0], "before_id": before[1]}
    if owner is None:
        return database.run("list_jobs", **filters)
    return database.run("list_owner_jobs", owner=owner, **filters)


def find_owner_jobs(database: Database, owner: str) -> list[UUID]:
    return [row["id"] for row in database.run("find_owner_jobs", owner=owner)]


def find_failed_jobs(database: Database, code: Code | None, owner: str | None, *, dead: bool) -> list[UUID]:
    rows = database.run("find_failed_jobs", error_code=code, owner=owner, dead_only=dead)
    return [row["id"] for row in rows]


def find_cancelled_jobs(database: Database, owner: str | None) -> list[UUID]:
    return [row["id"] for row in database.run("find_cancelled_jobs", owner=owner)]


def list_demo_jobs(database: Database, ids: Sequence[UUID]) -> list[DictRow]:
    """In the order of the ids, with the last error of a job that was retried."""
    return database.run("list_demo_jobs", ids=list(ids))


def list_last_errors(database: Database, states: Sequence[str], limit: int) -> list[DictRow]:
    """The jobs whose last attempt failed, newest error first; `states` are `failed` and `retrying`."""
    return database.run("list_last_errors", states=list(states), limit=limit)
