"""Retry by hand: a failed or cancelled job is queued again while its source file is there.

A failed job that waits for another one is left as it is; a cancelled one waits for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import psycopg
from convertq.queue.bulk import BATCH_JOBS, BulkProgress, in_batches
from convertq.queue.database.commit import commit
from convertq.queue.database.database import Database
from convertq.queue.errors import FILE_REFUSALS
from convertq.queue.jobs import get_job, get_statuses
from convertq.queue.queue_events import Operator, name_jobs, record_operator
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import Store
from psycopg.rows import DictRow

WAITING_CONSTRAINT = "job_waits_for_its_dependencies"  # raised by the function guard_job
#: Why retry_jobs leaves out some jobs of a list of failed jobs, in words.
WHY_SKIPPED = "source gone, or another job must be complete first"


class Obstacle(StrEnum):
    """Why a job was not queued again."""

    NO_SUCH_JOB = "no_such_job"
    NOT_ENDED = "not_ended"  # it is unfinished or complete
    FILE_REFUSED = "file_refused"  # nothing of it was ever stored
    WAITS_FOR_JOBS = "waits_for_jobs"
    NO_SOURCE = "no_source"


class SourceGone(Exception):
    """Cleanup has removed the source of a job that was just queued; nothing is changed."""

    def __init__(self, still_there: Sequence[UUID]) -> None:
        super().__init__("a source is gone")
        self.still_there = still_there


@dataclass(frozen=True)
class RetryRefusal:
    obstacle: Obstacle
    status: str | None = None
    error_code: str | None = None
    needed: Sequence[Mapping[str, Any]] = ()  # the jobs that must be complete first: id, status


def retry_job(database: Database, store: Store, job_id: UUID, operator: Operator | None = None) -> bool:
    return retry_jobs(database, store, [job_id], operator) == 1


def retry_jobs(
    database: Database,
    store: Store,
    ids: Sequence[UUID],
    operator: Operator | None = None,
    report: Callable[[BulkProgress], None] = lambda progress: None,
) -> int:
    """How many were queued; the others are neither failed nor cancelled, have no source any more, or wait for another
    job. Each batch is a transaction of its own: what was reported stays when the rest is interrupted. Without an
    operator it is the owner who retries."""
    tried = queued = 0
    for batch in in_batches(ids, BATCH_JOBS):
        queued += _retry_batch(database, store, batch, operator)
        tried += len(batch)
        report(BulkProgress(len(ids), tried, queued, tried - queued))
    return queued


def make_retry_due(database: Database, job_id: UUID, operator: Operator) -> bool:
    """A job that waits for its next attempt, or for its time, may be claimed now. False: it does not wait."""

    def make_due() -> bool:
        due = database.one("make_retry_due", id=job_id) is not None
        if due:
            record_operator(database, operator, "retry --now", **name_jobs([job_id]))
        return due

    return commit(database, make_due, lambda due: not due or not _waits_for_time(database, job_id))


def _waits_for_time(database: Database, job_id: UUID) -> bool:
    row = get_job(database, job_id)
    return row is not None and row["retry_after"] is not None


def explain_refused_retry(database: Database, job_id: UUID) -> RetryRefusal:
    """Says why retry_job has just not queued this job."""
    row = get_statuses(database, [job_id]).get(job_id)
    if row is None:
        return RetryRefusal(Obstacle.NO_SUCH_JOB)
    if row["status"] not in (JobStatus.FAILED, JobStatus.CANCELLED):
        return RetryRefusal(Obstacle.NOT_ENDED, row["status"])
    if row["error_code"] in FILE_REFUSALS:
        return RetryRefusal(Obstacle.FILE_REFUSED, row["status"], row["error_code"])
    if row["status"] == JobStatus.FAILED and (needed := list_needed_jobs(database, job_id)):
        return RetryRefusal(Obstacle.WAITS_FOR_JOBS, row["status"], row["error_code"], needed)
    return RetryRefusal(Obstacle.NO_SOURCE, row["status"], row["error_code"])


def _retry_batch(database: Database, store: Store, ids: Sequence[UUID], operator: Operator | None) -> int:
    """The files are checked again while the rows are locked: cleanup may have removed one in between."""
    there: Sequence[UUID] = store.find_sources(ids)

    def retry() -> Mapping[UUID, int]:
        runs = {row["id"]: row["run"] for row in database.run("retry_jobs", ids=list(there))}
        if len(still_there := store.find_sources(list(runs))) < len(runs):
            raise SourceGone(still_there)
        if runs and operator:
            record_operator(database, operator, "retry", **name_jobs(runs))
        return runs

    while there:
        try:
            return len(commit(database, retry, lambda runs: have_started(database, runs)))
        except SourceGone as gone:
            there = gone.still_there
        except psycopg.errors.CheckViolation as error:
            if not is_waiting(error):
                raise
            # A job that one of them needs was started over while this statement waited for its row: the next pass
            # leaves that one out.
    return 0


def have_started(database: Database, runs: Mapping[UUID, int]) -> bool:
    """Whether the transaction that began these runs of these jobs was committed: it began all of them or none."""
    rows = get_statuses(database, runs)
    return not runs or any(row["run"] >= runs[job_id] for job_id, row in rows.items())


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
