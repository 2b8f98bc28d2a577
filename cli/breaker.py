"""The command `convertq breaker`: shows the circuit breaker, and moves it by hand.

`--json` prints one object: `state` (closed, open, half_open), `by_hand`, `opened_at`, `open_seconds` (of this
opening), `open_seconds_total` (of all), `next_probe_seconds`, `probe_by`, `trial_job`, `calls` and `failures` (of the
last `window` gateway calls), `window`, `threshold`, `last_failures` (list of `at`, `job_id`, `error_code`,
`error_message`, `gateway_status`), and, after `open` or `close`, `changed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
from convertq.cli.context import NearChoice, configuration, json_option, open_database, print_json
from convertq.cli.table import cut, hang, table, terminal_width
from convertq.cli.words import counted, duration, moment, shown
from convertq.worker.db import Database
from convertq.worker.stats import describe_breaker

COLOURS = {"closed": "green", "open": "red", "half_open": "yellow"}


@click.command(
    epilog="""\b
Example:
  convertq breaker
  convertq breaker open       (hold the queue, until closed by hand)
  convertq breaker close
"""
)
@click.argument("action", required=False, type=NearChoice(["open", "close"]))
@json_option
def breaker(action: str | None, as_json: bool) -> None:
    """Show the circuit breaker, or open or close it by hand.

    While it is open no worker claims; jobs stay queued and use up no attempt. Opened by hand it is not
    probed and stays open until it is closed by hand.
    """
    with open_database() as database:
        said = ACTIONS[action](database) if action else None
        state = describe_breaker(database, configuration())
    if as_json:
        print_json(state if said is None else {**state, "changed": said[0]})
        return
    for line in [said[1]] if said else page(state, datetime.now(UTC)):
        click.echo(line)


def open_by_hand(database: Database) -> tuple[bool, str]:
    row = database.one("open_breaker_by_hand")
    if row is None:
        return False, "already open by hand: nothing changed"
    before = "" if row["came_from"] == "closed" else f" (it was {in_words(row['came_from'])} already)"
    return True, f"opened by hand{before}: no job is claimed until `convertq breaker close`"


def close_by_hand(database: Database) -> tuple[bool, str]:
    row = database.one("close_breaker_by_hand")
    if row is None:
        return False, "already closed: nothing changed"
    return True, f"closed by hand after {duration(row['seconds'])}: workers claim again, and the window starts anew"


ACTIONS = {"open": open_by_hand, "close": close_by_hand}


def page(state: dict[str, Any], now: datetime) -> Iterator[str]:
    yield f"breaker   {summary(state)}"
    if state["state"] != "closed":
        yield f"since     {moment(state['opened_at'], now)}"
        first, *rest = hang(shown(next_probe(state)), 10, terminal_width())
        yield from (f"probe     {first}", *rest)
    yield f"window    {window(state)}"
    yield f"in all    {'open for ' + duration(total) if (total := state['open_seconds_total']) else 'never open'}"
    if state["last_failures"]:
        yield ""
        yield "last failures"
        yield from failures(state["last_failures"], now)


def window(state: dict[str, Any]) -> str:
    fewest = math.ceil(state["window"] / 2)  # as trip_breaker has it
    rule = f"opens at {state['threshold']:.0%} of {fewest} to {state['window']}"
    if not state["calls"]:
        return f"no gateway call is recorded ({rule})"
    return f"{state['failures']} of the last {counted(state['calls'], 'gateway call')} failed ({rule})"


def summary(state: dict[str, Any]) -> str:
    """One line, as `stats` shows it too; coloured where the terminal can."""
    text = click.style(in_words(state["state"]), fg=COLOURS[state["state"]], bold=state["state"] != "closed")
    if state["state"] == "closed":
        return text
    how = ", by hand" if state["by_hand"] else ""
    return f"{text} for {duration(state['open_seconds'])}{how}: the queue is held"


def in_words(state: str) -> str:
    return state.replace("_", "-")


def next_probe(state: dict[str, Any]) -> str:
    if state["by_hand"]:
        return "none, until `convertq breaker close`"
    if state["trial_job"]:
        return f"job {state['trial_job']} is being tried"
    if state["state"] == "half_open":
        return f"the gateway answers; {state['probe_by']} takes one job to try"
    wait = state["next_probe_seconds"]
    return f"in {duration(wait)}" if wait > 0 else "due now: by the next worker that looks"


def failures(calls: list[dict[str, Any]], now: datetime) -> Iterator[str]:
    rows = [
        (
            moment(call["at"], now),
            call["error_code"] or "-",
            str(call["gateway_status"] or "-"),
            shown(call["error_message"] or "-"),
        )
        for call in calls
    ]
    width = terminal_width()
    for line in table(("WHEN", "CODE", "HTTP", "MESSAGE"), rows, elastic=("MESSAGE",)):
        yield f"  {line}" if width is None else cut(f"  {line}", width)
