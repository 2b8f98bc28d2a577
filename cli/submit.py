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
    make_directories,
    open_database,
    print_json,
    the_files,
)
from convertq.cli.exit_code import ExitCode, Stop
from convertq.cli.waiting import verdict, wait_for_jobs
from convertq.cli.words import shown
from convertq.worker.db import Database
from convertq.worker.errors import Code
from convertq.worker.submission import How, Order, Submission, Submitter

USUAL_MAPPING = "pt_simon_invoice_v1"
INT4 = click.IntRange(-(2**31), 2**31 - 1)


@click.command(
    epilog="""\b
Example:
  convertq submit invoice.pdf
  convertq submit --wait --priority 10 invoices/*.pdf
  convertq submit --after 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 summary.pdf
"""
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@click.option(
    "--mapping",
    shell_complete=complete_mapping,
    help=f"How to convert: one of MAPPINGS_ALLOWED ({USUAL_MAPPING} if it is there).",
)
@click.option("--owner", default="cli", show_default=True, help="Whose jobs they are; the same file joins per owner.")
@click.option("--priority", type=INT4, default=0, show_default=True, help="Higher is converted first.")
@click.option("--pretty/--no-pretty", default=True, show_default=True, help="Indent the XML.")
@click.option("--after", type=JOB_ID, multiple=True, help="Only when this job is complete; may be repeated.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the results; exit 1 if any failed.")
@json_option
def submit(paths: Sequence[Path], mapping: str | None, waits: bool, as_json: bool, **asked: Any) -> ExitCode:
    """Submit PDF files; prints their job ids, one a line."""
    order = Order(mapping=allowed_mapping(mapping), **asked)
    make_directories()
    with open_database() as database:
        refuse_unknown(database, order.after)
        submitter = Submitter(database, the_files(), configuration())
        found = [(path, submit_one(submitter, path, order, quiet=as_json)) for path in paths]
        ids = list(dict.fromkeys(done.id for _, done in found if done.id and done.how is not How.REFUSED))
        rows = {} if not waits or not ids else wait_for_jobs(database, ids)
    if as_json:
        for path, done in found:
            print_json(as_document(path, done, rows))
    else:
        complain_of_failed(rows)
    any_refused = any(done.how is How.REFUSED for _, done in found)
    return ExitCode.FAILED if any_refused else verdict(list(rows.values()))


def allowed_mapping(mapping: str | None) -> str:
    allowed = configuration().mappings_allowed
    if mapping is None:
        return USUAL_MAPPING if USUAL_MAPPING in allowed else allowed[0]
    if mapping not in allowed:
        raise click.BadParameter(
            f"{mapping!r} is not allowed here; allowed: {', '.join(allowed)}", param_hint="--mapping"
        )
    return mapping


def refuse_unknown(database: Database, ids: Sequence[UUID]) -> None:
    known = {row["id"] for row in database.run("get_statuses", ids=list(ids))} if ids else set()
    if missing := [str(job_id) for job_id in ids if job_id not in known]:
        raise Stop(ExitCode.NO_SUCH_JOB, f"no such job: {', '.join(missing)} (nothing was submitted)")


def submit_one(submitter: Submitter, path: Path, order: Order, *, quiet: bool) -> Submission:
    try:
        done = submitter.submit_file(path, order)
    except OSError as error:
        reason = error.strerror or str(error)
        done = Submission(None, How.REFUSED, Code.IO_ERROR, reason[:1].lower() + reason[1:])
    if not quiet:
        tell(path, done)
    return done


def tell(path: Path, done: Submission) -> None:
    if done.how is not How.REFUSED:
        click.echo(str(done.id))
        return
    job = f" (job {done.id})" if done.id else ""
    complain(f"{shown(str(path))}: {done.code}: {done.message}{job}")


def complain_of_failed(rows: dict[UUID, dict[str, Any]]) -> None:
    for job_id, row in rows.items():
        if row["status"] == "failed":
            complain(f"{job_id}: failed: {row['error_code']}: {row['error_message']}")


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
