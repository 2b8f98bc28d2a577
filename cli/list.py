"""The command `convertq list`: jobs as a table, newest first."""

from __future__ import annotations

from typing import Any

import click
from convertq.cli.colours import STATUSES as COLOURS
from convertq.cli.colours import painted
from convertq.cli.completion import complete_code
from convertq.cli.context import NearChoice, json_option, open_database, print_json_lines
from convertq.cli.formatting import duration, shown
from convertq.cli.table import table, terminal_width
from convertq.queue import jobs
from convertq.queue.errors import Code
from convertq.queue.quantities import size
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow

HEADINGS = ("ID", "STATUS", "AGE", "TRIES", "PRIO", "SIZE", "OWNER", "FILE", "ERROR")
ELASTIC = ("OWNER", "FILE", "ERROR")
OPTIONAL = ("SIZE", "PRIO", "OWNER", "TRIES")


@click.command(
    "list",
    epilog="""\b
Example:
  convertq list --status failed
  convertq list --owner cli --limit 10 --json
""",
)
@click.option("--status", type=NearChoice([status.value for status in JobStatus]), help="Only jobs in this status.")
@click.option("--owner", help="Only jobs of this owner.")
@click.option(
    "--code",
    type=NearChoice(list(Code)),
    metavar="CODE",
    shell_complete=complete_code,
    help="Only jobs that failed with this code, such as GW_5XX.",
)
@click.option(
    "--limit", type=click.IntRange(1, 2**31 - 1), default=50, show_default=True, help="Show at most this many."
)
@json_option
def list_jobs(as_json: bool, **filters: Any) -> None:
    """List jobs, newest first."""
    with open_database() as database:
        rows = jobs.list_jobs(database, **filters)
    if as_json:
        print_json_lines(rows)
        return
    listed = [cells(row) for row in rows]
    lines = table(HEADINGS, listed, elastic=ELASTIC, optional=OPTIONAL, width=terminal_width())
    for line in painted(lines, [row["status"] for row in rows], COLOURS):
        click.echo(line)


def cells(row: DictRow) -> tuple[str, ...]:
    error = f"{row['error_code']}: {row['error_message'] or ''}" if row["error_code"] else ""
    return (
        str(row["id"]),
        row["status"],
        duration(row["now"] - row["created_at"]),
        str(row["attempt_count"]),
        str(row["priority"]),
        size(row["bytes"]),
        shown(row["owner_session_id"] or "-"),
        shown(row["original_filename"] or "-"),
        shown(error),
    )
