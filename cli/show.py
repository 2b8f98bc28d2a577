"""The command `convertq show`: everything about one job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import click
from convertq.cli.context import JOB_ID, configuration, json_option, open_database, print_json, the_files
from convertq.cli.exit_code import ExitCode, Stop
from convertq.cli.explain import Facts, explain_job
from convertq.cli.table import GAP, hang, table, terminal_width
from convertq.cli.words import duration, moment, shown, size
from convertq.worker.db import Database
from convertq.worker.files import is_regular

TIMELINE = ("WHEN", "AFTER", "EVENT", "DETAILS")
LEFT_OUT = ("now", "progress", "waits_for", "id", "status")


@click.command(
    epilog="""\b
Example:
  convertq show 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11
  convertq show 0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11 --json | jq .events
"""
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
def show(job_id: UUID, as_json: bool) -> None:
    """Show everything about one job, with its events as a timeline."""
    with open_database() as database:
        facts = gather(database, job_id)
    if as_json:
        print_json({**facts.job, "explanation": explain_job(facts), "events": facts.events})
        return
    for line in page(facts):
        click.echo(line)


def gather(database: Database, job_id: UUID) -> Facts:
    job = database.one("get_job", id=job_id)
    if job is None:
        raise Stop(ExitCode.NO_SUCH_JOB, f"{job_id}: no such job")
    files = the_files()
    return Facts(
        job=job,
        events=database.run("list_events", id=job_id),
        hold=database.run("get_hold")[0],
        needed=database.run("get_statuses", ids=job["waits_for"]) if job["waits_for"] else (),
        max_attempts=configuration().retry_max_attempts,
        has_source=is_regular(files.source(job_id)),
        has_result=is_regular(files.result(job_id)),
    )


def page(facts: Facts) -> Iterator[str]:
    yield f"job {facts.job['id']}: {facts.job['status']}"
    yield from hang(shown(explain_job(facts)), 0, terminal_width())
    yield ""
    known = [(name, value) for name, value in facts.job.items() if value is not None and name not in LEFT_OUT]
    room = max(len(name) for name, _ in known)
    for name, value in known:
        lines = hang(written(name, value, facts.now), room + 4, terminal_width())
        yield f"  {name:<{room}}  {next(lines)}"
        yield from lines
    yield ""
    yield from timeline(facts.events, facts.now)


def written(name: str, value: Any, now: datetime) -> str:
    match value:
        case datetime():
            ago = now - value
            distance = f"{duration(ago)} ago" if ago.total_seconds() >= 0 else f"in {duration(-ago)}"
            return f"{value.astimezone():%Y-%m-%d %H:%M:%S %Z} ({distance})"
        case bool():
            return "yes" if value else "no"
        case int() if name == "bytes":
            return f"{value} ({size(value)})"
    return shown(str(value))


def timeline(events: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    """Each event with the time since the one before: where a job spent its life is seen at once."""
    rows, before = [], None
    for event in events:
        since = f"+{duration(event['at'] - before)}" if before else ""
        rows.append((moment(event["at"], now), since, event["event_type"], details(event["meta"])))
        before = event["at"]
    yield from table(TIMELINE, list(hanging(rows, terminal_width())))


def hanging(rows: Sequence[Sequence[str]], width: int | None) -> Iterator[Sequence[str]]:
    """The details on as many lines as they need."""
    taken = sum(max(len(row[at]) for row in [TIMELINE, *rows]) + len(GAP) for at in range(3))
    for *cells, last in rows:
        first, *rest = hang(last, 0, width and max(20, width - taken))
        yield *cells, first
        yield from (("", "", "", line) for line in rest)


def details(meta: dict[str, Any]) -> str:
    return shown(", ".join(f"{name} {value}" for name, value in meta.items()))
