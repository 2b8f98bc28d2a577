"""The command `convertq wait`: returns when jobs have ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click
from convertq.cli.context import JOB_ID, complain, json_option, open_database, print_json
from convertq.cli.estimate import probably_done
from convertq.cli.exit_code import ExitCode
from convertq.cli.explain import explain_job
from convertq.cli.formatting import shown
from convertq.cli.show import find_facts
from convertq.cli.waiting import verdict, wait_for_jobs
from convertq.queue.facts import Facts
from convertq.queue.quantities import counted
from convertq.queue.status import JobStatus
from convertq.queue.wait import has_ended


@click.command(
    epilog="""\b
Example:
  convertq wait 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 --timeout 60
  convertq wait $(convertq submit invoices/*.pdf)
"""
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
@click.option(
    "--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after this time, with exit code 1."
)
@json_option
def wait(ids: Sequence[UUID], timeout: float | None, as_json: bool) -> ExitCode:
    """Wait until jobs are complete, failed or cancelled; exit code 1 unless all are complete."""
    wanted = list(dict.fromkeys(ids))
    # With a progress bar on the terminal, the lines come after it.
    at_once = not sys.stderr.isatty()
    with open_database() as database:
        rows = wait_for_jobs(database, wanted, timeout, lambda row: print_row(row, as_json) if at_once else None)
        late = [row["id"] for row in rows.values() if not has_ended(row)]
        reasons = {job_id: in_words(find_facts(database, job_id)) for job_id in late}
    for row in rows.values():
        if not at_once or not has_ended(row):
            print_row(row, as_json)
    for job_id, reason in reasons.items():
        complain(f"{job_id}: {shown(reason)}")
    if reasons:
        complain(f"convertq: {counted(len(reasons), 'job')} not finished within {timeout:g} s")
    return max(verdict(list(rows.values())), complain_of_unknown(wanted, rows))


def in_words(facts: Facts) -> str:
    expected = f"; {probably_done(facts.estimate, facts.now)}" if facts.estimate else ""
    return explain_job(facts) + expected


def print_row(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({name: row[name] for name in ("id", "status", "error_code", "error_message")})
        return
    click.echo(f"{row['id']} {row['status']}")
    if row["status"] == JobStatus.FAILED:
        complain(f"{row['id']}: {row['error_code']}: {row['error_message']}")


def complain_of_unknown(wanted: Sequence[UUID], rows: dict[UUID, dict[str, Any]]) -> ExitCode:
    missing = [job_id for job_id in wanted if job_id not in rows]
    for job_id in missing:
        complain(f"{job_id}: no such job")
    return ExitCode.NO_SUCH_JOB if missing else ExitCode.DONE
