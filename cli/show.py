"""The command `convertq show`: everything about one job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import click
from convertq.cli.colours import EVENTS, STATUSES, paint
from convertq.cli.context import JOB_ID, configuration, json_option, open_database, print_json, the_store
from convertq.cli.estimate import probably_done
from convertq.cli.event_details import details
from convertq.cli.exit_code import ExitCode, Stop
from convertq.cli.explain import explain_job
from convertq.cli.formatting import duration, far_timestamp, shown, timestamp
from convertq.cli.table import GAP, hang, table, terminal_width
from convertq.queue.database.database import Database
from convertq.queue.database.timestamps import ExtendedTimestamp, parse_timestamp
from convertq.queue.estimates import as_document
from convertq.queue.facts import Facts, gather_facts
from convertq.queue.quantities import size

TIMELINE = ("WHEN", "AFTER", "EVENT", "DETAILS")
FILES = ("FILE", "STORAGE", "SIZE", "WHERE")
#: Shown elsewhere, or of use to convertq alone.
LEFT_OUT = (
    "now", "progress", "waits_for", "id", "status", "upload_path", "result_path",
    "turn", "own_transitions", "needs_follow_up", "paused", "over_cap",
)  # fmt: skip


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
        facts = find_facts(database, job_id)
    if as_json:
        files = {"events": facts.events, "artifacts": facts.artifacts}
        estimate = as_document(facts.estimate, facts.job["status"])
        job = {**facts.job, "paused": facts.is_paused}
        print_json({**job, "explanation": explain_job(facts), "estimate": estimate, **files})
        return
    for line in page(facts):
        click.echo(line)


def find_facts(database: Database, job_id: UUID) -> Facts:
    facts = gather_facts(database, configuration(), the_store(), job_id)
    if facts is None:
        raise Stop(ExitCode.NO_SUCH_JOB, f"{job_id}: no such job")
    return facts


def page(facts: Facts) -> Iterator[str]:
    status = facts.job["status"]
    yield f"job {facts.job['id']}: {click.style(status, fg=STATUSES.get(status), bold=True)}"
    yield from hang(shown(explain_job(facts)), 0, terminal_width())
    if facts.estimate:
        yield from hang(probably_done(facts.estimate, facts.now), 0, terminal_width())
    yield ""
    left_out = [*LEFT_OUT, "run"] if facts.job["run"] == 1 else LEFT_OUT
    known = [(name, value) for name, value in facts.job.items() if value is not None and name not in left_out]
    known += [("progress", in_words(facts.job["progress"], facts.now))] if facts.job["progress"] else []
    room = max(len(name) for name, _ in known)
    for name, value in known:
        lines = hang(written(name, value, facts.now), room + 4, terminal_width())
        yield f"  {click.style(f'{name:<{room}}', dim=True)}  {next(lines)}"
        yield from lines
    if facts.artifacts:
        yield ""
        yield from files(facts.artifacts)
    yield ""
    yield from timeline(facts.events, facts.now)


def written(name: str, value: Any, now: datetime) -> str:
    match value:
        case ExtendedTimestamp():
            return far_timestamp(value)
        case datetime():
            ago = now - value
            distance = f"{duration(ago)} ago" if ago.total_seconds() >= 0 else f"in {duration(-ago)}"
            return f"{value.astimezone():%Y-%m-%d %H:%M:%S %Z} ({distance})"
        case bool():
            return "yes" if value else "no"
        case int() if name == "bytes":
            return f"{value} ({size(value)})"
    return shown(str(value))


def in_words(progress: Mapping[str, Any], now: datetime) -> str:
    """`progress` comes from JSON, so that its time is text."""
    done, total = progress["bytes_done"], progress["bytes_total"]
    parts = [f"{progress['step']} {progress['percent']}%", f"{size(done)} of {size(total)}" if done and total else ""]
    ago = duration(now - parse_timestamp(progress["updated_at"]))
    return ", ".join(part for part in [*parts, progress["message"], f"{ago} ago"] if part)


def files(artifacts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    cells = [
        (each["kind"], each["storage"], size(each["bytes"]) if each["bytes"] else "-", shown(each["path_or_key"]))
        for each in artifacts
    ]
    heading, *lines = table(FILES, cells)
    yield click.style(heading, dim=True)
    yield from lines


def timeline(events: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    """Each event with the time since the one before, which shows where the job spent its time."""
    rows, before = [], None
    for event in events:
        since = f"+{duration(event['at'] - before)}" if before else ""
        rows.append((timestamp(event["at"], now), since, event["event_type"], details(event["meta"], now)))
        before = event["at"]
    cells = list(hanging(rows, terminal_width()))
    heading, *lines = table(TIMELINE, cells)
    yield click.style(heading, dim=True)
    yield from (paint(line, row[2], EVENTS) for line, row in zip(lines, cells, strict=True))


def hanging(rows: Sequence[Sequence[str]], width: int | None) -> Iterator[Sequence[str]]:
    """The details on as many lines as they need."""
    taken = sum(max(len(row[at]) for row in [TIMELINE, *rows]) + len(GAP) for at in range(3))
    for *cells, last in rows:
        first, *rest = hang(last, 0, width and max(20, width - taken))
        yield *cells, first
        yield from (("", "", "", line) for line in rest)
