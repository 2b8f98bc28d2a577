"""The command `convertq reclaim`: once, for cron."""

from __future__ import annotations

import click
from convertq.cli.context import configuration, json_option, open_database, print_json, the_files
from convertq.cli.words import counted
from convertq.worker.files import discard
from convertq.worker.job_queue import JobQueue

FULL_PASS = 100  # rows; a pass that finds fewer was the last


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
    files, statuses = the_files(), []
    with open_database() as database:
        queue = JobQueue(database, configuration())
        while True:
            rows = queue.reclaim_jobs()
            for row in rows:
                discard(files.part(row["id"], row["attempt"], row["holder"]))
                statuses.append(row["status"])
            if len(rows) < FULL_PASS:
                break
    given_up = statuses.count("failed")
    reclaimed = len(statuses) - given_up
    if as_json:
        print_json({"reclaimed": reclaimed, "given_up": given_up})
        return
    click.echo(f"reclaimed {counted(reclaimed, 'job')}")
    if given_up:
        click.echo(f"{counted(given_up, 'job')} given up")
