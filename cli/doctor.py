"""The command `convertq doctor`: a line for each check, with the remedy."""

from __future__ import annotations

import os
import textwrap
from collections import Counter

import click
from convertq.cli.context import APPLICATION_NAME, json_option, print_json
from convertq.cli.exit_code import ExitCode
from convertq.cli.formatting import shown
from convertq.cli.table import terminal_width
from convertq.queue.doctor.examination import examine
from convertq.queue.doctor.finding import Finding, State
from convertq.queue.quantities import counted

COLOURS = {State.OK: "green", State.WARN: "yellow", State.BAD: "red"}
NAME_WIDTH = 14  # columns of the longest name of a check
INDENT = " " * (4 + 2 + NAME_WIDTH + 2)


@click.command(
    epilog="""\b
Example:
  convertq doctor
  convertq doctor --fix
"""
)
@click.option("--fix", is_flag=True, help="Make directories, reclaim jobs, end convertq's own idle transactions.")
@json_option
def doctor(fix: bool, as_json: bool) -> ExitCode:
    """Check the installation, with remedies; exit 1 if anything is bad."""
    counts: Counter[State] = Counter()
    for finding in examine(os.environ, fix=fix, application_name=APPLICATION_NAME):
        counts[finding.state] += 1
        if as_json:
            print_json(as_document(finding))
        else:
            print_finding(finding)
    if not as_json:
        warnings = counted(counts[State.WARN], "warning")
        click.echo(f"{counted(counts.total(), 'check')}: {counts[State.OK]} ok, {warnings}, {counts[State.BAD]} bad")
    return ExitCode.FAILED if counts[State.BAD] else ExitCode.DONE


def as_document(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.check,
        "state": finding.state,
        "what": finding.what,
        "remedy": finding.remedy or None,
        "fixed": finding.fixed or None,
    }


def print_finding(finding: Finding) -> None:
    state = click.style(f"{finding.state:<4}", fg=COLOURS[finding.state])
    lines = wrap(finding.what)
    click.echo(f"{state}  {finding.check:<{NAME_WIDTH}}  {lines[0]}")
    more = [*lines[1:], *wrap(finding.remedy, "-> "), *wrap(finding.fixed, "done: ")]
    for line in more:
        click.echo(f"{INDENT}{line}")


def wrap(text: str, mark: str = "") -> list[str]:
    """Lines as wide as the terminal; in a pipe, one line."""
    line, width = f"{mark}{shown(text)}", terminal_width()
    if not text:
        return []
    if width is None:
        return [line]
    room = max(30, width - len(INDENT))
    return textwrap.wrap(line, room, subsequent_indent=" " * len(mark), break_on_hyphens=False)
