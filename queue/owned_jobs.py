"""The jobs of one owner, for a caller that may see only those."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.jobs import ListPosition
from psycopg.rows import DictRow


class NoSuchJob(Exception):
    pass


class OfAnotherOwner(Exception):
    pass


def find_created_at(database: Database, job_id: UUID, owner: str | None) -> datetime:
    """When the job was created. With an owner, it must be that owner's: raises NoSuchJob or OfAnotherOwner.

    The statement is the same for every job, so that its duration reveals nothing about the jobs of others.
    """
    found = database.one("find_owner", id=job_id)
    if found is None:
        raise NoSuchJob
    if owner is not None and found["owner"] != owner:
        raise OfAnotherOwner
    created_at: datetime = found["created_at"]
    return created_at


def get_owned_job(database: Database, job_id: UUID) -> DictRow:
    """A job that the caller knows to exist, as its owner may see it."""
    return database.run("get_session_job", id=job_id)[0]


def list_owned_jobs(
    database: Database, config: Config, owner: str, statuses: Sequence[str], before: ListPosition, limit: int
) -> list[DictRow]:
    """Newest first. Each row also has the queue's state; without a job there is one row, in which `id` is None."""
    return database.run(
        "list_session_jobs", owner=owner, statuses=list(statuses), before_created_at=before[0], before_id=before[1],
        limit=limit, gateways=config.gateway_names, heartbeat_timeout=config.worker_heartbeat_timeout_sec,
    )  # fmt: skip


def lock_owner(database: Database, owner: str) -> None:
    """Until the end of the transaction, another request of this owner waits: each of the two counts the other's job."""
    database.run("lock_owner", owner=owner)


def count_active_jobs(database: Database, owner: str) -> int:
    return int(database.run("count_active_jobs", owner=owner)[0]["active"])
