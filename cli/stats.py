"""The command `convertq stats`: the state of the whole queue on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
from convertq.cli.breaker import limits, summary
from convertq.cli.colours import STATUSES as COLOURS
from convertq.cli.context import configuration, json_option, open_database, print_json
from convertq.cli.formatting import duration, precise, shown
from convertq.cli.pause import in_words
from convertq.queue.quantities import counted
from convertq.queue.servers import ServerStatus
from convertq.queue.status import JobStatus

ERRORS_PER_LINE = 4
SHOWN_IF_ANY = (ServerStatus.DRAINING, ServerStatus.DEAD, ServerStatus.STOPPED)


@click.command(
    epilog="""\b
Example:
  convertq stats
  convertq stats --json | jq .jobs.queued
"""
)
@json_option
def stats(as_json: bool) -> None:
    """Show depth, throughput, errors and gateway times."""
    from convertq.queue.stats import get_stats

    with open_database() as database:
        found = get_stats(database, configuration())
    if as_json:
        print_json(found)
        return
    for line in page(found):
        click.echo(line)


def page(found: dict[str, Any]) -> Iterator[str]:
    yield from depth(found)
    yield ""
    yield from pace(found)
    yield from gateway(found["gateway_seconds"])
    yield from errors(found["errors_24h"])
    yield ""
    yield from breakers(found["gateways"])
    for at, line in enumerate(limits(found["gateways"], datetime.now(UTC))):
        yield f"{'' if at else 'limits':<12}{line}"
    yield f"servers     {servers(found['servers'])}"
    for at, pause in enumerate(found["pauses"]):
        yield f"{'' if at else 'paused':<12}{click.style(shown(in_words(pause)), fg='yellow')}"


def breakers(by_gateway: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A line for each gateway; the name of a single one says nothing."""
    heading = "breaker     "
    for name, state in by_gateway.items():
        yield f"{heading}{f'{name}: ' if len(by_gateway) > 1 else ''}{summary(state)}"
        heading = " " * len(heading)


def depth(found: dict[str, Any]) -> Iterator[str]:
    room = max(len(f"{number:,}") for number in found["jobs"].values())
    oldest = found["oldest_queued_seconds"]
    for status, number in found["jobs"].items():
        aside = f"   oldest waits for {duration(oldest)}" if status == JobStatus.QUEUED and oldest is not None else ""
        text = f"{number:>{room},}"
        yield f"{status:<11} {click.style(text, fg=COLOURS[status]) if number and status in COLOURS else text}{aside}"


def pace(found: dict[str, Any]) -> Iterator[str]:
    minute = found["completed_per_minute"]
    yield f"per minute  {minute['1m']:.0f} (1m)   {minute['5m']:.1f} (5m)   {minute['60m']:.1f} (60m)"
    ended = found["completed_60m"] + found["failed_60m"]
    rate = found["success_rate"]
    shown = "-" if rate is None else f"{rate:.1%} of {ended:,} in 60m"
    yield f"success     {shown}"


def gateway(times: dict[str, Any]) -> Iterator[str]:
    if not times["calls"]:
        yield "gateway     no call yet"
        return
    shown = "   ".join(f"{name} {precise(times[name])}" for name in ("p50", "p95", "p99"))
    yield f"gateway     {shown}   (last {counted(times['calls'], 'call')})"


def errors(by_code: dict[str, int]) -> Iterator[str]:
    if not by_code:
        yield "errors      no job failed in 24h"
        return
    shown = [f"{code} {number:,}" for code, number in by_code.items()]
    for at in range(0, len(shown), ERRORS_PER_LINE):
        line = click.style("   ".join(shown[at : at + ERRORS_PER_LINE]), fg="red")
        yield f"            {line}" if at else f"errors      {line}   (failed in 24h)"


def servers(by_status: dict[str, int]) -> str:
    active = by_status[ServerStatus.ACTIVE]
    if not active:
        text = click.style("none active", fg="red")
    else:
        text = f"{active} active with {counted(by_status['workers'], 'worker')}"
    others = [f"{by_status[status]} {status}" for status in SHOWN_IF_ANY if by_status[status]]
    return ", ".join([text, *others])
