"""What commands that change many jobs have in common: a preview, a progress bar, and an end by Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import click
from convertq.cli.context import complain, print_json
from convertq.cli.formatting import shown
from convertq.cli.table import columns, cut, table, terminal_width
from convertq.cli.waiting import bar
from convertq.queue.bulk import BulkProgress, sample_jobs
from convertq.queue.database.database import Database

HEADINGS = ("ID", "STATUS", "OWNER", "FILE")

Report = Callable[[BulkProgress], None]


def print_preview(database: Database, ids: Sequence[UUID], what: str, as_json: bool) -> None:
    """How many jobs would be changed, and the first of them; `what` is such as `would be cancelled`."""
    sample = sample_jobs(database, ids)
    if as_json:
        print_json({"dry_run": True, "matching": len(ids), "sample": sample})
        return
    click.echo(f"{len(ids):,} {'job' if len(ids) == 1 else 'jobs'} {what}")
    if sample:
        for line in table(HEADINGS, [_cells(row) for row in sample], elastic=("OWNER", "FILE"), width=terminal_width()):
            click.echo(line)
    if len(ids) > len(sample):
        click.echo(f"and {len(ids) - len(sample):,} more")


def _cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    owner, name = row["owner_session_id"] or "-", row["original_filename"] or "-"
    return str(row["id"]), row["status"], shown(owner), shown(name)


def change_in_bulk(change: Callable[[Report], object], wanted: int, done: str) -> BulkProgress:
    """Runs a change that reports after each of its commits. Ctrl-C ends it between two of them, or undoes the last."""
    progress = BulkProgress(wanted, 0, 0, 0)

    def report(reported: BulkProgress) -> None:
        nonlocal progress
        progress = reported
        _draw(progress, done)

    try:
        change(report)
    except KeyboardInterrupt:
        _end_line()
        complain(f"convertq: interrupted: {progress.done:,} {done}; the same command continues with the rest")
        raise
    _end_line()
    return progress


def _draw(progress: BulkProgress, done: str) -> None:
    if sys.stderr.isatty():
        room = (terminal_width(sys.stderr) or 80) - 1
        line = cut(f"{bar(progress.tried, progress.wanted)}  {progress.done:,} {done}", room)
        click.echo(f"\r{line}{' ' * (room - columns(line))}", nl=False, err=True)


def _end_line() -> None:
    if sys.stderr.isatty():
        click.echo(err=True)
