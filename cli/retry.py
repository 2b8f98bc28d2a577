"""The command `convertq retry`: failed jobs are queued again, by id or in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never
from uuid import UUID

import click
from convertq.cli.completion import complete_code
from convertq.cli.context import FAILED_JOB_ID, NearChoice, complain, json_option, open_database, print_json, the_store
from convertq.cli.exit_code import ExitCode
from convertq.queue.database.database import Database
from convertq.queue.errors import Code
from convertq.queue.jobs import find_failed_jobs
from convertq.queue.manual_retry import (
    WHY_SKIPPED,
    Obstacle,
    RetryRefusal,
    explain_refused_retry,
    must_be_complete_first,
    retry_job,
    retry_jobs,
)
from convertq.queue.store.protocol import Store


@click.command(
    epilog="""\b
Example:
  convertq retry 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11
  convertq retry --code GW_TIMEOUT
  convertq retry --dead --owner cli
"""
)
@click.argument("ids", metavar="[ID...]", nargs=-1, type=FAILED_JOB_ID)
@click.option("--failed", is_flag=True, help="Every failed job.")
@click.option(
    "--code",
    type=NearChoice(list(Code)),
    metavar="CODE",
    shell_complete=complete_code,
    help="Failed jobs with this code, such as GW_TIMEOUT.",
)
@click.option("--dead", is_flag=True, help="Failed jobs that were given up after their last attempt.")
@click.option("--owner", help="Failed jobs of this owner.")
@json_option
def retry(
    ids: Sequence[UUID], failed: bool, code: Code | None, dead: bool, owner: str | None, as_json: bool
) -> ExitCode:
    """Queue failed jobs again, by id or in bulk."""
    in_bulk = failed or code is not None or dead or owner is not None
    if bool(ids) == in_bulk:
        raise click.UsageError("name job ids, or choose in bulk with --failed, --code, --dead or --owner")
    with open_database() as database:
        if in_bulk:
            return retry_in_bulk(database, the_store(), find_failed_jobs(database, code, owner, dead=dead), as_json)
        return max(retry_one(database, the_store(), job_id, as_json) for job_id in dict.fromkeys(ids))


def retry_one(database: Database, store: Store, job_id: UUID, as_json: bool) -> ExitCode:
    code, reason = ExitCode.DONE, None
    if not retry_job(database, store, job_id):
        refusal = explain_refused_retry(database, job_id)
        code, reason = exit_code(refusal), in_words(refusal)
    if as_json:
        print_json({"id": job_id, "queued": reason is None, "reason": reason})
    elif reason is None:
        click.echo(f"{job_id} queued")
    else:
        complain(f"{job_id}: {reason}")
    return code


def exit_code(refusal: RetryRefusal) -> ExitCode:
    return ExitCode.NO_SUCH_JOB if refusal.obstacle is Obstacle.NO_SUCH_JOB else ExitCode.NOT_IN_STATE


def in_words(refusal: RetryRefusal) -> str:
    match refusal.obstacle:
        case Obstacle.NO_SUCH_JOB:
            return "no such job"
        case Obstacle.NOT_FAILED:
            return f"it is {refusal.status}; only failed jobs are retried"
        case Obstacle.FILE_REFUSED:
            return f"it was refused ({refusal.error_code}); nothing of it is stored"
        case Obstacle.WAITS_FOR_JOBS:
            return must_be_complete_first(refusal.needed)
        case Obstacle.NO_SOURCE:
            return "its source file is gone; submit the file again"
        case _:
            assert_never(refusal.obstacle)


def retry_in_bulk(database: Database, store: Store, ids: Sequence[UUID], as_json: bool) -> ExitCode:
    queued = retry_jobs(database, store, ids)
    skipped = len(ids) - queued
    if as_json:
        print_json({"queued": queued, "skipped": skipped})
    else:
        click.echo(f"{queued} queued" + (f", {skipped} skipped ({WHY_SKIPPED})" if skipped else ""))
    return ExitCode.DONE
