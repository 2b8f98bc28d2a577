"""The command `convertq log`: what happened to the queue as a whole, and who changed it by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from convertq.cli.colours import QUEUE_EVENTS, painted
from convertq.cli.context import json_option, open_database, print_json_lines
from convertq.cli.formatting import shown, timestamp
from convertq.cli.table import table, terminal_width
from convertq.queue.queue_events import SHOWN_EVENTS, describe, list_queue_events

HEADINGS = ("WHEN", "EVENT", "DETAILS")


@click.command(
    epilog="""\b
Example:
  convertq log
  convertq log --limit 5 --json
"""
)
@click.option(
    "--limit",
    type=click.IntRange(1, 2**31 - 1),
    default=SHOWN_EVENTS,
    show_default=True,
    help="Show at most this many.",
)
@json_option
def log(limit: int, as_json: bool) -> None:
    """Show what happened to the queue, newest first: the breaker, pauses, full disks, and changes by hand.

    `convertq show` has the events of one job.
    """
    with open_database() as database:
        events = list_queue_events(database, limit)
    if as_json:
        print_json_lines(events)
        return
    now = datetime.now(UTC)
    cells = [(timestamp(event["at"], now), event["event_type"], shown(describe(event))) for event in events]
    lines = table(HEADINGS, cells, elastic=("DETAILS",), width=terminal_width())
    for line in painted(lines, [event["event_type"] for event in events], QUEUE_EVENTS):
        click.echo(line)
