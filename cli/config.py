"""The command `convertq config`: what each setting is, where it comes from, and what is wrong with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from convertq.cli.colours import painted
from convertq.cli.context import json_option, print_json_lines
from convertq.cli.table import table, terminal_width
from convertq.cli.words import shown
from convertq.worker.config import SETTINGS, Setting, read_config

MASK = "***"
COLOURS = {"environment": "cyan", "environment, wrong": "red"}
#: settings whose default depends on something: what it is for a service
USUALLY = {"LOG_FORMAT": "json"}
USERINFO = re.compile(r"(?:([^/]*)(@))?(.*)", re.DOTALL)
SECRET_PARAMETER = re.compile(r"(?<=[?&])([^=&?]*password[^=&]*)=[^&]*", re.IGNORECASE)


@click.command(
    epilog="""\b
Example:
  convertq config
  convertq config --json | jq 'select(.source == "environment")'
"""
)
@json_option
def config(as_json: bool) -> None:
    """Show the configuration in force, without its secrets; exit 78 when some of it is wrong."""
    rows = [describe(setting, os.environ) for setting in SETTINGS]
    if as_json:
        print_json_lines(rows)
    else:
        cells = [(row["variable"], in_words(row["value"]), origin(row)) for row in rows]
        lines = table(("VARIABLE", "VALUE", "SOURCE"), cells, elastic=["VALUE"], width=terminal_width())
        for line in painted(lines, [origin(row) for row in rows], COLOURS):
            click.echo(line)
    read_config(os.environ)  # raises ConfigError with every problem


def describe(setting: Setting, environment: Mapping[str, str]) -> dict[str, Any]:
    given = environment.get(setting.variable) or None  # an empty one counts as unset
    text = given or setting.default or USUALLY.get(setting.variable)
    source = "environment" if given else "default" if text is not None else "not set"
    row = {"variable": setting.variable, "value": None, "source": source, "problem": None}
    if text is None:
        return row
    try:
        value = setting.read(text)
    except ValueError as error:
        return row | {"value": MASK if setting.secret else text, "problem": str(error)}
    if setting.secret:
        return row | {"value": masked(text)}
    return row | {"value": str(value) if isinstance(value, Path) else value}


def origin(row: Mapping[str, Any]) -> str:
    return f"{row['source']}, wrong" if row["problem"] else str(row["source"])


def masked(url: str) -> str:
    """As it was written, but for what must stay secret: the password, or for HTTP all that stands before an @.

    Taken apart by hand: a # or a ? in a password would end the name of the host for a parser of URLs.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:  # no URL at all: a token
        return MASK
    credentials, at, place = USERINFO.fullmatch(rest).groups()  # type: ignore[union-attr]  # it fits any text
    if at:
        name, colon, _ = credentials.partition(":")
        is_web = scheme.startswith("http")  # a token may stand where the name does
        credentials = MASK if is_web else f"{name}:{MASK}" if colon else name
    rest = SECRET_PARAMETER.sub(rf"\1={MASK}", place)
    return f"{scheme}{separator}{credentials or ''}{at or ''}{rest}"


def in_words(value: Any) -> str:
    if value is None:
        return "-"
    return shown(",".join(value) if isinstance(value, tuple) else str(value))
