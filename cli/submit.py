"""The command `convertq submit`: files in, job ids out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from convertq.cli.completion import complete_mapping
from convertq.cli.context import (
    JOB_ID,
    complain,
    configuration,
    json_option,
    open_database,
    print_json,
    the_store,
)
from convertq.cli.exit_code import ExitCode, Stop
from convertq.cli.formatting import shown
from convertq.cli.waiting import verdict, wait_for_jobs
from convertq.queue.database.database import Database
from convertq.queue.errors import Code, StorageError
from convertq.queue.jobs import find_missing_jobs
from convertq.queue.mapping import MappingNotAllowed, choose_mapping
from convertq.queue.status import JobStatus
from convertq.queue.submission import Submission, SubmissionOptions, SubmissionResult, Submitter
from convertq.queue.times import Times, WrongTime, choose_times, parse_moment

INT4 = click.IntRange(-(2**31), 2**31 - 1)


@click.command(
    epilog="""\b
Example:
  convertq submit invoice.pdf
  convertq submit --wait --priority 10 invoices/*.pdf
  convertq submit --after 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 summary.pdf
  convertq submit --not-before +8h --deadline 2026-12-24T18:00:00+01:00 report.pdf
"""
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@click.option(
    "--mapping",
    shell_complete=complete_mapping,
    help="The conversion: one of MAPPINGS_ALLOWED. Default: pt_simon_invoice_v1 if it is allowed, else the first.",
)
@click.option(
    "--owner",
    default="cli",
    show_default=True,
    help="The owner of the jobs; the same file of the same owner joins its job.",
)
@click.option(
    "--priority", type=INT4, default=0, show_default=True, help="Jobs with a higher priority are converted first."
)
@click.option("--pretty/--no-pretty", default=True, show_default=True, help="Indent the XML.")
@click.option("--after", type=JOB_ID, multiple=True, help="Wait until this job is complete; may be repeated.")
@click.option("--not-before", metavar="TIME", help="Do not begin earlier: RFC 3339 with a zone, or +30m from now.")
@click.option("--deadline", metavar="TIME", help="Fail a job that could not begin before this time.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the results; exit 1 if any failed.")
@json_option
def submit(
    paths: Sequence[Path],
    mapping: str | None,
    not_before: str | None,
    deadline: str | None,
    waits: bool,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Submit PDF files and print their job ids, one per line."""
    allowed = allowed_mapping(mapping)
    the_store().make_ready()
    with open_database() as database:
        wanted = SubmissionOptions(mapping=allowed, times=find_times(database, not_before, deadline), **options)
        refuse_unknown(database, wanted.after)
        submitter = Submitter(database, the_store(), configuration())
        found = [(path, submit_one(submitter, path, wanted, quiet=as_json)) for path in paths]
        ids = list(dict.fromkeys(done.id for _, done in found if done.id and done.how is not SubmissionResult.REFUSED))
        rows = {} if not waits or not ids else wait_for_jobs(database, ids)
    if as_json:
        for path, done in found:
            print_json(as_document(path, done, rows))
    else:
        complain_of_failed(rows)
    codes = [_exit_code(done) for _, done in found]
    return max([*codes, verdict(list(rows.values()))])


def _exit_code(done: Submission) -> ExitCode:
    if done.how is not SubmissionResult.REFUSED:
        return ExitCode.DONE
    return ExitCode.NOT_IN_STATE if done.code is Code.NOT_READY else ExitCode.FAILED


def allowed_mapping(mapping: str | None) -> str:
    try:
        return choose_mapping(configuration(), mapping)
    except MappingNotAllowed as refusal:
        raise click.BadParameter(f"{mapping!r} is not allowed here; {refusal}", param_hint="--mapping") from None


def find_times(database: Database, not_before: str | None, deadline: str | None) -> Times:
    try:
        begins, ends = parse_moment("--not-before", not_before), parse_moment("--deadline", deadline)
        return choose_times(database, begins, ends)
    except WrongTime as error:
        raise click.UsageError(f"{error} (nothing was submitted)") from None


def refuse_unknown(database: Database, ids: Sequence[UUID]) -> None:
    if missing := find_missing_jobs(database, ids):
        raise Stop(ExitCode.NO_SUCH_JOB, f"no such job: {', '.join(map(str, missing))} (nothing was submitted)")


def submit_one(submitter: Submitter, path: Path, options: SubmissionOptions, *, quiet: bool) -> Submission:
    try:
        done = submitter.submit_file(path, options)
    except StorageError:
        raise  # the next file would fail too
    except OSError as error:
        reason = error.strerror or str(error)
        done = Submission(None, SubmissionResult.REFUSED, Code.IO_ERROR, reason[:1].lower() + reason[1:])
    if not quiet:
        print_submission(path, done)
    return done


def print_submission(path: Path, done: Submission) -> None:
    if done.how is not SubmissionResult.REFUSED:
        click.echo(str(done.id))
        return
    job = f" (job {done.id})" if done.id else ""
    complain(f"{shown(str(path))}: {done.code}: {done.message}{job}")


def complain_of_failed(rows: dict[UUID, dict[str, Any]]) -> None:
    for job_id, row in rows.items():
        if row["status"] == JobStatus.FAILED:
            complain(f"{job_id}: failed: {row['error_code']}: {row['error_message']}")
        elif row["status"] == JobStatus.CANCELLED:
            complain(f"{job_id}: cancelled")


def as_document(path: Path, done: Submission, rows: dict[UUID, dict[str, Any]]) -> dict[str, Any]:
    document = {
        "file": shown(str(path)),
        "id": done.id,
        "outcome": done.how,
        "code": done.code,
        "message": done.message,
    }
    if done.id in rows:
        row = rows[done.id]
        document |= {name: row[name] for name in ("status", "error_code", "error_message")}
    return document
