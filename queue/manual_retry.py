"""Retry by hand: a failed job is queued again only while its source file is there and it waits for no other job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import psycopg
from convertq.queue.database.database import Database
from convertq.queue.errors import FILE_REFUSALS
from convertq.queue.jobs import get_statuses
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import Store
from psycopg.rows import DictRow

BATCH_JOBS = 500
WAITING_CONSTRAINT = "job_waits_for_its_dependencies"  # raised by the function guard_job
#: Why retry_jobs leaves out some jobs of a list of failed jobs, in words.
WHY_SKIPPED = "source gone, or another job must be complete first"


class Obstacle(StrEnum):
    """Why a job was not queued again."""

    NO_SUCH_JOB = "no_such_job"
    NOT_FAILED = "not_failed"
    FILE_REFUSED = "file_refused"  # nothing of it was ever stored
    WAITS_FOR_JOBS = "waits_for_jobs"
    NO_SOURCE = "no_source"


@dataclass(frozen=True)
class RetryRefusal:
    obstacle: Obstacle
    status: str | None = None
    error_code: str | None = None
    needed: Sequence[Mapping[str, Any]] = ()  # the jobs that must be complete first: id, status


def retry_job(database: Database, store: Store, job_id: UUID) -> bool:
    return retry_jobs(database, store, [job_id]) == 1


def retry_jobs(database: Database, store: Store, ids: Sequence[UUID]) -> int:
    """How many were queued; the others are not failed, have no source any more, or wait for another job."""
    starts = range(0, len(ids), BATCH_JOBS)
    return sum(_retry_batch(database, store, ids[start : start + BATCH_JOBS]) for start in starts)


def explain_refused_retry(database: Database, job_id: UUID) -> RetryRefusal:
    """Says why retry_job has just not queued this job."""
    row = get_statuses(database, [job_id]).get(job_id)
    if row is None:
        return RetryRefusal(Obstacle.NO_SUCH_JOB)
    if row["status"] != JobStatus.FAILED:
        return RetryRefusal(Obstacle.NOT_FAILED, row["status"])
    if row["error_code"] in FILE_REFUSALS:
        return RetryRefusal(Obstacle.FILE_REFUSED, row["status"], row["error_code"])
    if needed := list_needed_jobs(database, job_id):
        return RetryRefusal(Obstacle.WAITS_FOR_JOBS, row["status"], row["error_code"], needed)
    return RetryRefusal(Obstacle.NO_SOURCE, row["status"], row["error_code"])


def _retry_batch(database: Database, store: Store, ids: Sequence[UUID]) -> int:
    """The files are checked again while the rows are locked: cleanup may have removed one in between."""
    there = store.find_sources(ids)
    while there:
        try:
            with database.transaction():
                queued = [row["id"] for row in database.run("retry_jobs", ids=there)]
                still_there = store.find_sources(queued)
                if len(still_there) == len(queued):
                    return len(queued)
                raise psycopg.Rollback
            there = still_there
        except psycopg.errors.CheckViolation as error:
            if not is_waiting(error):
                raise
            # A job that one of them needs was started over while this statement waited for its row: the next pass
            # leaves that one out.
    return 0


def is_waiting(error: psycopg.Error) -> bool:
    """Whether guard_job refused to queue a job because another one must be complete first."""
    return error.diag.constraint_name == WAITING_CONSTRAINT


def list_needed_jobs(database: Database, job_id: UUID) -> list[DictRow]:
    """The jobs that must be complete before this one may be started over: id and status of each."""
    return database.run("list_needed_jobs", id=job_id)


def must_be_complete_first(needed: Sequence[Mapping[str, Any]]) -> str:
    plural = "jobs" if len(needed) > 1 else "job"
    return f"it waits for {plural} {name_statuses(needed)}, which must be complete first"


def name_statuses(jobs: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{job['id']} ({job['status']})" for job in jobs)
