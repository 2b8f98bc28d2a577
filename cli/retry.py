"""The command `convertq retry`: failed or cancelled jobs are queued again, by id or in bulk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never
from uuid import UUID

import click
from convertq.cli.bulk import change_in_bulk, print_preview
from convertq.cli.completion import complete_code
from convertq.cli.context import (
    RETRYABLE_JOB_ID,
    NearChoice,
    complain,
    json_option,
    open_database,
    print_json,
    the_store,
)
from convertq.cli.exit_code import ExitCode
from convertq.queue.database.database import Database
from convertq.queue.errors import Code
from convertq.queue.jobs import find_cancelled_jobs, find_failed_jobs, get_job, get_statuses
from convertq.queue.manual_retry import (
    WHY_SKIPPED,
    Obstacle,
    RetryRefusal,
    explain_refused_retry,
    list_needed_jobs,
    make_retry_due,
    must_be_complete_first,
    retry_job,
    retry_jobs,
)
from convertq.queue.queue_events import operator_at_terminal
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import Store

WOULD_BE_QUEUED = "would be queued again, if their source is there"


@click.command(
    epilog="""\b
Example:
  convertq retry 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11
  convertq retry --code GW_TIMEOUT
  convertq retry --dead --owner cli --dry-run
  convertq retry --now 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11     (it waits for its next attempt)
"""
)
@click.argument("ids", metavar="[ID...]", nargs=-1, type=RETRYABLE_JOB_ID)
@click.option("--failed", is_flag=True, help="Every failed job.")
@click.option(
    "--code",
    type=NearChoice(list(Code)),
    metavar="CODE",
    shell_complete=complete_code,
    help="Failed jobs with this code, such as GW_TIMEOUT.",
)
@click.option("--dead", is_flag=True, help="Failed jobs that were given up after their last attempt.")
@click.option("--cancelled", is_flag=True, help="Every cancelled job, instead of failed ones.")
@click.option("--owner", help="Failed jobs of this owner, or with --cancelled the cancelled ones.")
@click.option("--now", is_flag=True, help="Do not let these jobs wait any longer for their next attempt or their time.")
@click.option("--dry-run", is_flag=True, help="Print how many jobs, and the first of them; queue nothing.")
@json_option
def retry(
    ids: Sequence[UUID],
    failed: bool,
    code: Code | None,
    dead: bool,
    cancelled: bool,
    owner: str | None,
    now: bool,
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Queue failed or cancelled jobs again, by id or in bulk; or, with --now, end the wait of jobs that are queued.

    In bulk, each batch of 500 jobs is committed by itself: Ctrl-C keeps what was queued until then.
    """
    of_failed = failed or code is not None or dead
    in_bulk = of_failed or cancelled or owner is not None
    if now and (in_bulk or dry_run or not ids):
        raise click.UsageError("--now takes job ids, and no filter")
    if bool(ids) == in_bulk:
        raise click.UsageError("name job ids, or choose in bulk with --failed, --code, --dead, --cancelled or --owner")
    if cancelled and of_failed:
        raise click.UsageError("--cancelled chooses other jobs than --failed, --code and --dead: retry them separately")
    with open_database() as database:
        if in_bulk:
            found = (
                find_cancelled_jobs(database, owner)
                if cancelled
                else find_failed_jobs(database, code, owner, dead=dead)
            )
            return retry_in_bulk(database, the_store(), found, dry_run=dry_run, as_json=as_json)
        if now:
            return max(make_due(database, job_id, as_json) for job_id in dict.fromkeys(ids))
        if dry_run:
            return preview(database, the_store(), list(dict.fromkeys(ids)), as_json)
        return max(retry_one(database, the_store(), job_id, as_json) for job_id in dict.fromkeys(ids))


def preview(database: Database, store: Store, ids: Sequence[UUID], as_json: bool) -> ExitCode:
    """Of jobs that are named. What changes until the retry itself, such as a source that expires, is not foreseen."""
    rows, there = get_statuses(database, ids), set(store.find_sources(ids))
    refusals = {
        job_id: explain_refused_retry(database, job_id) for job_id in ids if not _may_retry(rows, there, job_id)
    }
    print_preview(database, [job_id for job_id in ids if job_id not in refusals], WOULD_BE_QUEUED, as_json)
    for job_id, refusal in refusals.items():
        complain(f"{job_id}: {in_words(refusal)}")
    return max([exit_code(refusal) for refusal in refusals.values()], default=ExitCode.DONE)


def _may_retry(rows: Mapping[UUID, Mapping[str, Any]], there: set[UUID], job_id: UUID) -> bool:
    status = rows[job_id]["status"] if job_id in rows else None
    return status in (JobStatus.FAILED, JobStatus.CANCELLED) and job_id in there


def retry_one(database: Database, store: Store, job_id: UUID, as_json: bool) -> ExitCode:
    code, reason = ExitCode.DONE, None
    if not retry_job(database, store, job_id, operator_at_terminal()):
        refusal = explain_refused_retry(database, job_id)
        code, reason = exit_code(refusal), in_words(refusal)
    elif needed := list_needed_jobs(database, job_id):  # it was cancelled, and waits again
        reason = must_be_complete_first(needed)
    return print_outcome(job_id, code, reason, as_json)


def make_due(database: Database, job_id: UUID, as_json: bool) -> ExitCode:
    code, reason = ExitCode.DONE, None
    if not make_retry_due(database, job_id, operator_at_terminal()):
        row = get_job(database, job_id)
        code = ExitCode.NOT_IN_STATE if row else ExitCode.NO_SUCH_JOB
        reason = why_not_due(row) if row else "no such job"
    return print_outcome(job_id, code, reason, as_json)


def why_not_due(row: Mapping[str, Any]) -> str:
    if row["status"] != JobStatus.QUEUED:
        return f"it is {row['status']}; only a queued job can wait for its next attempt"
    if row["over_cap"]:
        return "its owner has as many running jobs as OWNER_MAX_RUNNING allows, and others of the owner go first"
    return "its owner is paused" if row["paused"] else "it does not wait: the next free worker takes it in its turn"


def print_outcome(job_id: UUID, code: ExitCode, reason: str | None, as_json: bool) -> ExitCode:
    if as_json:
        print_json({"id": job_id, "queued": reason is None, "reason": reason})
    elif reason is None:
        click.echo(f"{job_id} queued")
    elif code is ExitCode.DONE:
        click.echo(f"{job_id} is started over; {reason}")
    else:
        complain(f"{job_id}: {reason}")
    return code


def exit_code(refusal: RetryRefusal) -> ExitCode:
    return ExitCode.NO_SUCH_JOB if refusal.obstacle is Obstacle.NO_SUCH_JOB else ExitCode.NOT_IN_STATE


def in_words(refusal: RetryRefusal) -> str:
    match refusal.obstacle:
        case Obstacle.NO_SUCH_JOB:
            return "no such job"
        case Obstacle.NOT_ENDED:
            return f"it is {refusal.status}; only failed and cancelled jobs are retried"
        case Obstacle.FILE_REFUSED:
            return f"it was refused ({refusal.error_code}); nothing of it is stored"
        case Obstacle.WAITS_FOR_JOBS:
            return must_be_complete_first(refusal.needed)
        case Obstacle.NO_SOURCE:
            return "its source file is gone; submit the file again"
        case _:
            assert_never(refusal.obstacle)


def retry_in_bulk(
    database: Database, store: Store, ids: Sequence[UUID], *, dry_run: bool, as_json: bool
) -> ExitCode:  # fmt: skip
    if dry_run:
        print_preview(database, ids, WOULD_BE_QUEUED, as_json)
        return ExitCode.DONE
    operator = operator_at_terminal()
    progress = change_in_bulk(lambda report: retry_jobs(database, store, ids, operator, report), len(ids), "queued")
    if as_json:
        print_json({"queued": progress.done, "skipped": progress.skipped})
    else:
        skipped = f", {progress.skipped} skipped ({WHY_SKIPPED})" if progress.skipped else ""
        click.echo(f"{progress.done} queued{skipped}")
    return ExitCode.DONE
