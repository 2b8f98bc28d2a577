"""Jobs of any owner, newest first, page by page: what `convertq list` and the operator's page show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from convertq.worker.counters import STATUSES
from convertq.worker.db import Database
from convertq.worker.errors import Code
from psycopg.rows import DictRow

Place = tuple[datetime, UUID]
NEWEST: Place = (datetime.max.replace(tzinfo=UTC), UUID(int=0))


def find_jobs(
    database: Database,
    status: str | None,
    owner: str | None,
    code: Code | None,
    limit: int,
    before: Place = NEWEST,
    *,
    dead: bool = False,
) -> list[DictRow]:
    """`dead`: only those that were given up after their last attempt."""
    statuses = [status] if status else ["failed"] if code or dead else list(STATUSES)
    asked: dict[str, Any] = {"statuses": statuses, "error_code": code, "dead_only": dead, "limit": limit}
    asked |= {"before_created_at": before[0], "before_id": before[1]}
    if owner is None:
        return database.run("list_jobs", **asked)
    return database.run("list_owner_jobs", owner=owner, **asked)
