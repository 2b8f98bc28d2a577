"""The command `convertq servers`: the registered supervisors and what each worker does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
from convertq.cli.breaker import limits
from convertq.cli.colours import painted
from convertq.cli.context import configuration, json_option, open_database, print_json, print_json_lines
from convertq.cli.formatting import duration, shown
from convertq.cli.table import hang, table, terminal_width
from convertq.queue.breaker_state import get_breakers
from convertq.queue.quantities import counted
from convertq.queue.servers import ENDED, UNREGISTERED, ServerStatus, get_servers, prune_servers

HEADINGS = ("SERVER", "STATUS", "BUSY", "UP", "BEAT", "VERSION", "LABEL")
COLOURS: dict[str, str] = {
    ServerStatus.ACTIVE: "green",
    ServerStatus.DRAINING: "yellow",
    ServerStatus.DEAD: "red",
    UNREGISTERED: "red",
}


@click.command(
    epilog="""\b
Example:
  convertq servers
  convertq servers --prune
"""
)
@click.option(
    "--prune", is_flag=True, help="Remove servers that stopped or died over a minute ago and have no leased job."
)
@json_option
def servers(prune: bool, as_json: bool) -> None:
    """List registered supervisors and their running jobs."""
    with open_database() as database:
        pruned = prune_servers(database) if prune else 0
        found = get_servers(database, configuration())
        breakers = {} if prune or as_json else get_breakers(database, configuration())
    if prune:
        print_pruned(pruned, found, as_json)
    elif as_json:
        print_json_lines(found)
    else:
        for line in (*page(found), *limits(breakers, datetime.now(UTC))):
            click.echo(line)


def print_pruned(pruned: int, left: list[dict[str, Any]], as_json: bool) -> None:
    kept = sum(server["status"] in ENDED for server in left)
    if as_json:
        print_json({"pruned": pruned, "kept": kept})
        return
    click.echo(f"removed {counted(pruned, 'server')}")
    if kept:
        click.echo(
            f"kept {counted(kept, 'server')} that ended within the last minute or whose jobs are not reclaimed yet"
        )


def page(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        yield "no server has registered: start one with `convertq worker run`"
        return
    lines = table(HEADINGS, [cells(server) for server in found], elastic=("SERVER",), width=terminal_width())
    heading, *rows = painted(lines, [server["status"] for server in found], COLOURS)
    yield heading
    for server, row in zip(found, rows, strict=True):
        yield row
        for job in server["jobs"]:
            slot = f"  {job['slot']:>3}  "
            first, *rest = hang(doing(job), len(slot), terminal_width())
            yield from (f"{slot}{first}", *rest)


def cells(server: dict[str, Any]) -> tuple[str, ...]:
    up, beat = server["up_seconds"], server["heartbeat_seconds"]
    is_heard = server["status"] != "stopped" and beat is not None
    return (
        shown(server["id"]),
        server["status"],
        f"{len(server['jobs'])}/{server['concurrency'] or '?'}",
        "-" if up is None else duration(up),
        f"{duration(beat)} ago" if is_heard else "-",
        server["version"] or "-",
        shown(server["environment"] or "-"),
    )


def doing(job: dict[str, Any]) -> str:
    progress = f", {job['step']} {job['percent']}%" if job["step"] else ""
    late = ", its lease has expired" if job["lease_seconds"] < 0 else ""
    return f"{job['job_id']}  try {job['attempt']}, {duration(job['seconds'] or 0)}{progress}{late}"
