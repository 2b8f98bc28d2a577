"""The command `convertq breaker`: shows the circuit breaker, and moves it by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click
from convertq.cli.context import (
    NearChoice,
    configuration,
    json_option,
    open_database,
    print_json,
    require_known_gateway,
)
from convertq.cli.formatting import duration, shown, timestamp
from convertq.cli.table import cut, hang, table, terminal_width
from convertq.queue.breaker_state import ACTIONS, describe_breaker, move_breakers
from convertq.queue.gateway import DEFAULT_GATEWAY
from convertq.queue.limits import describe_limit
from convertq.queue.quantities import counted
from convertq.queue.queue_events import operator_at_terminal

Row = Mapping[str, Any]
COLOURS = {"closed": "green", "open": "red", "half_open": "yellow"}


@click.command(
    epilog="""\b
Example:
  convertq breaker
  convertq breaker open       (pause the queue until it is closed by hand)
  convertq breaker close
  convertq breaker open --gateway grobid
"""
)
@click.argument("action", required=False, type=NearChoice(list(ACTIONS)))
@click.option("--gateway", metavar="NAME", help="Only the breaker of this gateway. Default: those of all gateways.")
@json_option
def breaker(action: str | None, gateway: str | None, as_json: bool) -> None:
    """Show the circuit breakers, or open or close them by hand.

    Each gateway has its own. While it is open no worker claims jobs for that gateway; they stay queued and
    use up no attempt. Opened by hand it is not probed and stays open until it is closed by hand.
    """
    require_known_gateway(gateway)
    names = configuration().gateway_names
    chosen = [gateway] if gateway else names
    with open_database() as database:
        moved = move_breakers(database, action, chosen, operator_at_terminal()) if action else []
        changes = {row["gateway"]: row for row in moved}
        state = describe_breaker(database, configuration(), gateway)
    if as_json:
        print_json({**state, "changed": bool(changes)} if action else state)
        return
    if action:
        lines = iter([f"{_prefix(name, names)}{CHANGES[action](name, changes.get(name))}" for name in chosen])
    else:
        lines = page(state, datetime.now(UTC)) if len(chosen) == 1 else pages(state, datetime.now(UTC))
    for line in lines:
        click.echo(line)


def _prefix(name: str, names: list[str]) -> str:
    return f"{name}: " if len(names) > 1 else ""


def gateway_option(name: str) -> str:
    """What `convertq breaker close` is given to close the breaker of this gateway alone."""
    return "" if name == DEFAULT_GATEWAY else f" --gateway {name}"


def opened(gateway: str, change: Row | None) -> str:
    if change is None:
        return "already open by hand: nothing changed"
    before = "" if change["came_from"] == "closed" else f" (it was {in_words(change['came_from'])} already)"
    return f"opened by hand{before}: no job is claimed until `convertq breaker close{gateway_option(gateway)}`"


def closed(_gateway: str, change: Row | None) -> str:
    if change is None:
        return "already closed: nothing changed"
    return f"closed by hand after {duration(change['seconds'])}: workers claim again, and the window starts empty"


CHANGES = {"open": opened, "close": closed}


def pages(state: dict[str, Any], now: datetime) -> Iterator[str]:
    """All gateways, and the failures of the one that is worst off."""
    for name, each in state["gateways"].items():
        yield f"gateway   {name}"
        yield from page({**each, "last_failures": state["last_failures"] if name == state["gateway"] else []}, now)
        yield ""


def page(state: dict[str, Any], now: datetime) -> Iterator[str]:
    yield f"breaker   {summary(state)}"
    if state["state"] != "closed":
        yield f"since     {timestamp(state['opened_at'], now)}"
        first, *rest = hang(shown(next_probe(state)), 10, terminal_width())
        yield from (f"probe     {first}", *rest)
    yield f"window    {window(state)}"
    if state["max_calls"]:
        yield f"calls     {state['running_calls']} of at most {state['max_calls']} at a time in the whole cluster"
    if state["limit_reason"]:
        yield f"limit     {limit_in_words(state, now).removeprefix('limit ')}"
    yield f"in all    {'open for ' + duration(total) if (total := state['open_seconds_total']) else 'never open'}"
    if state["last_failures"]:
        yield ""
        yield "last failures"
        yield from failures(state["last_failures"], now)


def window(state: dict[str, Any]) -> str:
    fewest = math.ceil(state["window"] / 2)  # as in trip_breaker.sql
    rule = f"opens at {state['threshold']:.0%} of {fewest} to {state['window']}"
    if not state["calls"]:
        return f"no gateway call is recorded ({rule})"
    return f"{state['failures']} of the last {counted(state['calls'], 'gateway call')} failed ({rule})"


def summary(state: dict[str, Any]) -> str:
    """One line, which `stats` shows too; in colour where the terminal has colours."""
    text = click.style(in_words(state["state"]), fg=COLOURS[state["state"]], bold=state["state"] != "closed")
    if state["state"] == "closed":
        return text
    how = ", by hand" if state["by_hand"] else ""
    held = "the queue is held" if state["gateway"] == DEFAULT_GATEWAY else "its jobs are held"
    return f"{text} for {duration(state['open_seconds'])}{how}: {held}"


def limit_in_words(state: Mapping[str, Any], now: datetime) -> str:
    """Of a gateway whose limit is adaptive."""
    return describe_limit(state, f"since {timestamp(state['limit_since'], now)}")


def limits(by_gateway: dict[str, dict[str, Any]], now: datetime) -> Iterator[str]:
    """A line for each gateway whose limit is adaptive."""
    for name, state in by_gateway.items():
        if state["limit_reason"]:
            yield f"{f'{name}: ' if len(by_gateway) > 1 else ''}{limit_in_words(state, now)}"


def in_words(state: str) -> str:
    return state.replace("_", "-")


def next_probe(state: dict[str, Any]) -> str:
    if state["by_hand"]:
        return f"none, until `convertq breaker close{gateway_option(state['gateway'])}`"
    if state["trial_job"]:
        return f"job {state['trial_job']} is being tried"
    if state["state"] == "half_open":
        return f"the gateway answers; {state['probe_by']} takes one job to try"
    wait = state["next_probe_seconds"]
    return f"in {duration(wait)}" if wait > 0 else "due now: by the next worker that checks"


def failures(calls: list[dict[str, Any]], now: datetime) -> Iterator[str]:
    rows = [
        (
            timestamp(call["at"], now),
            call["error_code"] or "-",
            str(call["gateway_status"] or "-"),
            shown(call["error_message"] or "-"),
        )
        for call in calls
    ]
    width = terminal_width()
    for line in table(("WHEN", "CODE", "HTTP", "MESSAGE"), rows, elastic=("MESSAGE",)):
        yield f"  {line}" if width is None else cut(f"  {line}", width)
