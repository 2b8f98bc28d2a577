"""The command `convertq reclaim`: once, for cron."""

from __future__ import annotations

import click
from convertq.cli.context import configuration, json_option, open_database, print_json, the_files
from convertq.cli.words import counted
from convertq.worker.reclaim import reclaim_all


@click.command(
    epilog="""\b
Example:
  convertq reclaim
  * * * * *  convertq reclaim        (in a crontab)
"""
)
@json_option
def reclaim(as_json: bool) -> None:
    """Give jobs of lost workers back to the queue, once; says how many."""
    with open_database() as database:
        reclaimed, given_up = reclaim_all(database, configuration(), the_files())
    if as_json:
        print_json({"reclaimed": reclaimed, "given_up": given_up})
        return
    click.echo(f"reclaimed {counted(reclaimed, 'job')}")
    if given_up:
        click.echo(f"{counted(given_up, 'job')} given up")
