"""A visitor's jobs: found, listed, retried, cancelled. Of the jobs of others nothing is read but their owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never
from uuid import UUID

from convertq.queue import artifact, jobs
from convertq.queue.cancel import Cancelling, CancelVerdict
from convertq.queue.database.commit import commit
from convertq.queue.database.database import Database
from convertq.queue.errors import Code
from convertq.queue.estimates import as_document, estimate_jobs
from convertq.queue.jobs import NEWEST, ListPosition
from convertq.queue.manual_retry import Obstacle, RetryRefusal, explain_refused_retry, have_started, retry_job
from convertq.queue.owned_jobs import (
    NoSuchJob,
    OfAnotherOwner,
    count_active_jobs,
    find_created_at,
    get_owned_job,
    list_owned_jobs,
    lock_owner,
)
from convertq.queue.queue_state import get_queue_state
from convertq.queue.status import JobStatus
from convertq.web.context import web
from convertq.web.http_error import HttpError, job_must_wait, job_of_another_visitor, no_such_job, too_many_active
from convertq.web.job_view import view_artifact, view_event, view_job
from convertq.web.reads import reading
from convertq.web.request_parameters import LIMIT
from psycopg.rows import DictRow


@dataclass(frozen=True)
class Page:
    jobs: Sequence[dict[str, Any]]
    active: int  # the owner's, on every page
    next: UUID | None  # the `before` of the page that follows
    held: bool = False  # the breaker lets no job through


def list_jobs(owner: str, status: str | None = None, limit: int = LIMIT, before: UUID | datetime | None = None) -> Page:
    with reading() as database:
        start = find_position(database, before, owner)
        rows = list_owned_jobs(database, web().config, owner, [status] if status else list(JobStatus), start, limit + 1)
    found = [row for row in rows if row["id"] is not None]
    shown = [view_job(row, row, web().config, web().store) for row in found[:limit]]
    following = shown[-1]["id"] if len(found) > limit else None
    return Page(shown, rows[0]["active"], following, held=rows[0]["queue_breaker"] != "closed")


def find_position(database: Database, before: UUID | datetime | None, owner: str | None = None) -> ListPosition:
    """Where a page begins. With an owner, a page can begin only after a job of that owner."""
    if before is None:
        return NEWEST
    if isinstance(before, datetime):
        return before, UUID(int=2**128 - 1)
    return find_created(database, before, owner), before


def find_created(database: Database, job_id: UUID, owner: str | None) -> datetime:
    """Raises the HttpError of a job that does not exist or is not this owner's."""
    try:
        return find_created_at(database, job_id, owner)
    except NoSuchJob:
        raise no_such_job() from None
    except OfAnotherOwner:
        raise job_of_another_visitor() from None


def find_row(database: Database, owner: str, job_id: UUID) -> DictRow:
    find_created(database, job_id, owner)
    return get_owned_job(database, job_id)


def find_job(owner: str, job_id: UUID) -> dict[str, Any]:
    with reading() as database:
        row = find_row(database, owner, job_id)
        state = get_queue_state(database, web().config, row["route"])
        view = view_job(row, state, web().config, web().store)
        _add_estimates(database, [view])
    return view


def add_estimates(views: Sequence[dict[str, Any]]) -> None:
    """Sets the estimate of each job that has one. An estimate changes all the time, so it is no part of an ETag, and
    is computed only for a page that is sent."""
    if any(view["display"]["is_active"] for view in views):
        with reading() as database:
            _add_estimates(database, views)


def _add_estimates(database: Database, views: Sequence[dict[str, Any]]) -> None:
    active = [view["id"] for view in views if view["display"]["is_active"]]
    estimates = estimate_jobs(database, web().config, active).estimates
    for view in views:
        view["estimate"] = as_document(estimates.get(view["id"]), view["status"])


def list_events(owner: str, job_id: UUID) -> list[dict[str, Any]]:
    with reading() as database:
        find_created(database, job_id, owner)
        events = jobs.list_events(database, job_id)
    return [view_event(event) for event in events]


def list_artifacts(owner: str, job_id: UUID) -> list[dict[str, Any]]:
    with reading() as database:
        find_created(database, job_id, owner)
        found = artifact.list_artifacts(database, job_id)
    return [view_artifact(each) for each in found]


def retry(owner: str, job_id: UUID) -> dict[str, Any]:
    """The job, queued again; 409 unless it is failed and its source is there, 429 when the owner has too many."""
    with web().connections.session() as database:
        find_created(database, job_id, owner)
        commit(
            database, lambda: _retry(database, owner, job_id), lambda run: have_started(database, {job_id: run})
        )  # fmt: skip
        row = get_owned_job(database, job_id)
        state = get_queue_state(database, web().config, row["route"])
        view = view_job(row, state, web().config, web().store)
        _add_estimates(database, [view])
    return view


def _retry(database: Database, owner: str, job_id: UUID) -> int:
    """The number of the run that begins. An exception rolls the transaction back."""
    lock_owner(database, owner)
    if not retry_job(database, web().store, job_id):
        raise not_retried(explain_refused_retry(database, job_id))
    _check_active_jobs(database, owner)
    return int(jobs.get_statuses(database, [job_id])[job_id]["run"])


def cancel(owner: str, job_id: UUID) -> dict[str, Any]:
    """The job, which is cancelled now or was before; 409 when it is complete or failed."""
    with web().connections.session() as database:
        find_created(database, job_id, owner)
        done = Cancelling(database, web().store).cancel(job_id)
        if done.verdict is CancelVerdict.NO_SUCH_JOB:
            raise no_such_job()
        if done.verdict is CancelVerdict.ENDED:
            raise HttpError(409, f"the job is {done.status}; only unfinished jobs are cancelled")
        row = get_owned_job(database, job_id)
        state = get_queue_state(database, web().config)
    return view_job(row, state, web().config, web().store)


def _check_active_jobs(database: Database, owner: str) -> None:
    """Called after the job was queued, so that it is counted too. The exception rolls the transaction back."""
    limit = web().config.session_max_active
    if count_active_jobs(database, owner) > limit:
        raise too_many_active(limit)


def not_retried(refusal: RetryRefusal) -> HttpError:
    match refusal.obstacle:
        case Obstacle.NO_SUCH_JOB:
            return no_such_job()
        case Obstacle.NOT_ENDED:
            message = f"the job is {refusal.status}; only failed and cancelled jobs are retried"
            return HttpError(409, message, Code.NOT_READY)
        case Obstacle.FILE_REFUSED:
            return HttpError(409, "the file was refused, and nothing of it is stored", Code(refusal.error_code or ""))
        case Obstacle.WAITS_FOR_JOBS:
            return job_must_wait()
        case Obstacle.NO_SOURCE:
            return HttpError(409, "the uploaded file is no longer kept: upload it again", Code.EXPIRED)
        case _:
            assert_never(refusal.obstacle)
