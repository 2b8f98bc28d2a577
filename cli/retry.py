"""The command `convertq retry`: failed jobs are queued again, by id or in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import click
from convertq.cli.completion import complete_code
from convertq.cli.context import FAILED_JOB_ID, NearChoice, complain, json_option, open_database, print_json, the_files
from convertq.cli.exit_code import ExitCode
from convertq.worker.db import Database
from convertq.worker.errors import Code
from convertq.worker.files import Files
from convertq.worker.manual_retry import retry_job, retry_jobs
from convertq.worker.submission import REFUSALS


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
            found = database.run("find_failed_jobs", error_code=code, owner=owner, dead_only=dead)
            return retry_in_bulk(database, the_files(), [row["id"] for row in found], as_json)
        return max(retry_one(database, the_files(), job_id, as_json) for job_id in dict.fromkeys(ids))


def retry_one(database: Database, files: Files, job_id: UUID, as_json: bool) -> ExitCode:
    code, reason = ExitCode.DONE, None
    if not retry_job(database, files, job_id):
        code, reason = why_not(database, job_id)
    if as_json:
        print_json({"id": job_id, "queued": reason is None, "reason": reason})
    elif reason is None:
        click.echo(f"{job_id} queued")
    else:
        complain(f"{job_id}: {reason}")
    return code


def why_not(database: Database, job_id: UUID) -> tuple[ExitCode, str]:
    rows = database.run("get_statuses", ids=[job_id])
    if not rows:
        return ExitCode.NO_SUCH_JOB, "no such job"
    if rows[0]["status"] != "failed":
        return ExitCode.NOT_IN_STATE, f"it is {rows[0]['status']}; only failed jobs are retried"
    if rows[0]["error_code"] in REFUSALS:
        return ExitCode.NOT_IN_STATE, f"it was refused ({rows[0]['error_code']}); nothing of it is stored"
    return ExitCode.NOT_IN_STATE, "its source file is gone; submit the file again"


def retry_in_bulk(database: Database, files: Files, ids: Sequence[UUID], as_json: bool) -> ExitCode:
    queued = retry_jobs(database, files, ids)
    skipped = len(ids) - queued
    if as_json:
        print_json({"queued": queued, "skipped": skipped})
    else:
        click.echo(f"{queued} queued" + (f", {skipped} skipped (source gone)" if skipped else ""))
    return ExitCode.DONE
