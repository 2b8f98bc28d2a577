"""The command `convertq top`: the queue, its workers and its last errors, live or as one frame."""

from __future__ import annotations

import os
import signal
import sys

import click
from convertq.cli.context import APPLICATION_NAME, configuration, json_option, open_database, print_json
from convertq.cli.table import terminal_width

MINUTES = 60  # in the graphs of a single frame


@click.command(
    epilog="""\b
Keys:
  arrows or j, k   select one of the last errors
  r                queue the selected failed job again
  f                show all errors, failed jobs only, or retrying ones only
  ?                help
  q                quit

\b
Example:
  convertq top --interval 5
  convertq top --once --json | jq .jobs
"""
)
@click.option("--once", is_flag=True, help="Print one frame as text and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two updates.",
)
@json_option
def top(once: bool, interval: float, as_json: bool) -> None:
    """Watch the queue live in the terminal."""
    if as_json and not once:
        raise click.UsageError("--json prints one frame: add --once")
    if once:
        print_once(as_json)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        watch(interval)
    else:
        raise click.UsageError("this is not a terminal: add --once for one frame as text")


def print_once(as_json: bool) -> None:
    from convertq.cli.terminal import has_colours
    from convertq.cli.top.graph import knows_unicode
    from convertq.cli.top.screen import fitted, page
    from convertq.cli.top.snapshot import as_document, take_snapshot
    from convertq.cli.top.view import View
    from convertq.queue.history import last_minutes
    from rich.console import Console

    with open_database() as database:
        snapshot = take_snapshot(database, configuration())
        minutes = [] if as_json else last_minutes(database, MINUTES)
    if as_json:
        print_json(as_document(snapshot))
        return
    width, unicode = terminal_width(), knows_unicode(sys.stdout.encoding, os.environ)
    console = Console(highlight=False, no_color=not has_colours())
    for line in page(View(snapshot, where=configuration().database.shown, minutes=minutes), width):
        console.print(fitted(line, width, unicode=unicode), soft_wrap=True)


def watch(interval: float) -> None:
    """Connects before it takes the screen, so that an error at the start is a line and an exit code."""
    from convertq.cli.top.live import Live
    from convertq.cli.top.sampler import Sampler
    from convertq.cli.top.snapshot import take_snapshot
    from convertq.cli.top.view import View
    from convertq.queue.database.database import Database

    config = configuration()
    database = Database.open(config.database, APPLICATION_NAME)
    view = View(take_snapshot(database, config), where=config.database.shown)
    ended = Live(Sampler(database, config, interval), view).run()
    if ended is signal.SIGINT:
        raise KeyboardInterrupt
    if ended is not None:
        signal.signal(ended, signal.SIG_DFL)
        signal.raise_signal(ended)
