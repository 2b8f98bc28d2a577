"""The command `convertq reclaim`: one reclaim of lost jobs, for cron."""

from __future__ import annotations

import click
from convertq.cli.context import complain, configuration, json_option, open_database, print_json, the_store
from convertq.queue.quantities import counted
from convertq.queue.reclaim import reclaim_and_listen


@click.command(
    epilog="""\b
Example:
  convertq reclaim
  * * * * *  convertq reclaim        (in a crontab)
"""
)
@json_option
def reclaim(as_json: bool) -> None:
    """Reclaim the jobs of lost workers, once, and print how many.

    A server without a heartbeat is marked dead only by a session that could have received one. If no other server
    is active, this command listens for WORKER_HEARTBEAT_TIMEOUT_SEC first.
    """
    with open_database() as database:
        reclaimed, given_up = reclaim_and_listen(database, configuration(), the_store(), announce)
    if as_json:
        print_json({"reclaimed": reclaimed, "given_up": given_up})
        return
    click.echo(f"reclaimed {counted(reclaimed, 'job')}")
    if given_up:
        click.echo(f"{counted(given_up, 'job')} given up")


def announce(silent: int) -> None:
    wait = f"waiting {configuration().worker_heartbeat_timeout_sec} s to see"
    if silent == 1:
        complain(f"1 server is silent; {wait} whether it is alive")
    else:
        complain(f"{silent} servers are silent; {wait} whether they are alive")
