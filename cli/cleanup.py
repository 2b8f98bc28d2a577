"""The command `convertq cleanup`: retention, once, for a timer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
from convertq.cli.context import complain, configuration, json_option, open_database, print_json, the_store
from convertq.cli.exit_code import ExitCode, Stop
from convertq.cli.formatting import shown
from convertq.queue.quantities import counted
from convertq.queue.queue_events import operator_at_terminal
from convertq.queue.retention import Item, Kind, Retention

NOUNS = {
    Kind.SOURCE: "source",
    Kind.RESULT: "result",
    Kind.EVENT: "event",
    Kind.ORPHAN: "orphan",
    Kind.TEMP: "temporary file",
    Kind.JOB: "job",
}
#: Keys of the JSON summary that are not the plural of the noun.
KEYS = {Kind.TEMP: "temp_files"}
REASONS = {
    Kind.JOB: "ended",
    Kind.SOURCE: "its job ended",
    Kind.RESULT: "expired",
    Kind.EVENT: "happened",
    Kind.ORPHAN: "no job wants it, written",
    Kind.TEMP: "left behind, written",
}


@click.command(
    epilog="""\b
Example:
  convertq cleanup --dry-run
  0 3 * * *  convertq cleanup        (in a crontab)
"""
)
@click.option("--dry-run", is_flag=True, help="List what would be removed, one item per line, and remove nothing.")
@json_option
def cleanup(dry_run: bool, as_json: bool) -> ExitCode:
    """Remove expired sources, results, events and jobs, orphan files and temporary files."""
    counts: Counter[Kind] = Counter()
    freed = failed = 0
    refuse_missing_store()
    with open_database() as database:
        retention = Retention(database, the_store(), configuration(), operator_at_terminal(), dry_run=dry_run)
        for item in retention.run():
            if item.error:
                failed += 1
                complain(f"{shown(item.name)}: not removed: {item.error}")
                continue
            counts[item.kind] += item.count
            freed += item.bytes
            if dry_run:
                print_item(item, as_json)
    if as_json:
        print_json(summary(counts, freed, failed, dry_run))
    else:
        done = "would remove" if dry_run else "removed"
        click.echo(f"{done} {', '.join(counted(counts[kind], noun) for kind, noun in NOUNS.items())}")
    return ExitCode.FAILED if failed else ExitCode.DONE


def refuse_missing_store() -> None:
    """Called before anything is removed: a missing mount must not pass for an empty store."""
    try:
        the_store().require()
    except FileNotFoundError as error:
        raise Stop(ExitCode.FAILED, f"{error.strerror}; nothing was removed") from None


def print_item(item: Item, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "kind": item.kind,
                "name": item.name,
                "job_id": item.job_id,
                "since": item.since,
                "bytes": item.bytes,
            }
        )
        return
    since = f"{item.since.astimezone():%Y-%m-%d %H:%M}" if item.since else ""
    what = f"{item.name} of job {item.job_id}" if item.kind is Kind.EVENT and item.job_id else shown(item.name)
    click.echo(f"{item.kind:<7} {what} ({REASONS[item.kind]} {since})")


def summary(counts: Counter[Kind], freed: int, failed: int, dry_run: bool) -> dict[str, Any]:
    removed = {KEYS.get(kind, f"{noun}s"): counts[kind] for kind, noun in NOUNS.items()}
    return {"dry_run": dry_run, **removed, "bytes": freed, "failed": failed}
