"""The commands `convertq pause` and `convertq resume`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click
from convertq.cli.context import json_option, open_database, print_json, require_known_gateway
from convertq.cli.formatting import shown, timestamp
from convertq.queue.pauses import (
    Scope,
    describe_scope,
    end_pauses,
    list_pauses,
    move_paused_jobs,
    move_resumed_jobs,
    start_pause,
)
from convertq.queue.quantities import counted
from convertq.queue.queue_events import operator_at_terminal


def refuse_empty(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """In a script, the variable that should have named the owner is empty."""
    if text == "":
        raise click.BadParameter("it is empty; omit it for all owners", context, option)
    return text


gateway_option = click.option("--gateway", metavar="NAME", help="Only jobs of this gateway.")
owner_option = click.option("--owner", help="Only jobs of this owner.", callback=refuse_empty)


@click.command(
    epilog="""\b
Example:
  convertq pause                       (everything)
  convertq pause --owner cli
  convertq pause --gateway default --owner cli
"""
)
@gateway_option
@owner_option
@json_option
def pause(gateway: str | None, owner: str | None, as_json: bool) -> None:
    """Stop claiming: every job, the jobs of a gateway, of an owner, or of one owner at one gateway.

    Jobs that are running are finished; those that are queued wait and use up no attempt.
    """
    require_known_gateway(gateway)
    scope = Scope(gateway, owner)
    with open_database() as database:
        is_new = start_pause(database, scope, operator_at_terminal())
        moved = move_paused_jobs(database, math.inf)
        left = list_pauses(database)
    if as_json:
        print_json({"changed": is_new, "pauses": left})
        return
    aside = f"; {counted(moved, 'queued job')} set aside" if moved else ""
    already = "" if is_new else " already"
    click.echo(f"{shown(describe_scope(scope))} is paused{already}{aside}: `convertq resume{resume_options(scope)}`")


@click.command(
    epilog="""\b
Example:
  convertq resume --owner cli
  convertq resume --all
"""
)
@gateway_option
@owner_option
@click.option("--all", "every", is_flag=True, help="End every pause.")
@json_option
def resume(gateway: str | None, owner: str | None, every: bool, as_json: bool) -> None:
    """Claim paused jobs again. Name what was named to `pause`; --all ends every pause."""
    if every and (gateway is not None or owner is not None):
        raise click.UsageError("--all ends every pause: give neither --gateway nor --owner with it")
    require_known_gateway(gateway)
    scope = Scope(gateway, owner)
    with open_database() as database:
        ended = end_pauses(database, scope, operator_at_terminal(), every=every)
        move_resumed_jobs(database, math.inf)
        left = list_pauses(database)
    if as_json:
        print_json({"changed": bool(ended), "pauses": left})
        return
    for each in ended:
        click.echo(f"{shown(describe_scope(each))} is resumed")
    if not ended:
        click.echo("nothing is paused" if every else f"{shown(describe_scope(scope))} was not paused: nothing changed")
    for row in left:
        click.echo(f"still paused: {shown(in_words(row))}")


def resume_options(scope: Scope) -> str:
    """What `convertq resume` is given to end this pause."""
    return "".join(f" --{name} {shown(value)}" for name, value in scope._asdict().items() if value is not None)


def in_words(pause: Mapping[str, Any]) -> str:
    """A row of list_pauses."""
    since = timestamp(pause["at"], datetime.now(UTC))
    return f"{describe_scope(Scope(pause['gateway'], pause['owner']))}, by {pause['by']} since {since}"
