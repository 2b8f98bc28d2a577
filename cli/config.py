"""The command `convertq config`: the value of each setting, where it comes from, and what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from convertq.cli.colours import painted
from convertq.cli.context import json_option, print_json_lines
from convertq.cli.formatting import shown
from convertq.cli.table import table, terminal_width
from convertq.queue.config import is_ignored, read_config
from convertq.queue.masked_url import masked
from convertq.queue.pool_size import PoolSize
from convertq.queue.setting import Setting
from convertq.queue.settings import SETTINGS
from convertq.queue.storage_url import StorageUrl

COLOURS = {"environment": "cyan", "environment, wrong": "red"}
#: The default of a setting that depends on the environment, as it is for a service.
SERVICE_DEFAULTS = {"LOG_FORMAT": "json"}


@click.command(
    epilog="""\b
Example:
  convertq config
  convertq config --json | jq 'select(.source == "environment")'
"""
)
@json_option
def config(as_json: bool) -> None:
    """Show the configuration in force, without secrets; exit 78 if any value is wrong."""
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
    if is_ignored(setting, environment):
        return {"variable": setting.variable, "value": None, "source": "ignored", "problem": None}
    given = environment.get(setting.variable) or None  # an empty value counts as not set
    text = given or setting.default or SERVICE_DEFAULTS.get(setting.variable)
    source = "environment" if given else "default" if text is not None else "not set"
    row = {"variable": setting.variable, "value": None, "source": source, "problem": None}
    if text is None:
        return row
    try:
        value = setting.read(text)
    except ValueError as error:
        return row | {"value": masked(text) if setting.secret else text, "problem": str(error)}
    if setting.secret:
        return row | {"value": masked(text)}
    if setting.variable == "GATEWAYS_FILE":
        return row | {"value": text}
    if isinstance(value, PoolSize):
        return row | {"value": str(value) if value.is_elastic else value.least}
    return row | {"value": str(value) if isinstance(value, Path | StorageUrl) else value}


def origin(row: Mapping[str, Any]) -> str:
    return f"{row['source']}, wrong" if row["problem"] else str(row["source"])


def in_words(value: Any) -> str:
    if value is None:
        return "-"
    return shown(",".join(value) if isinstance(value, tuple) else str(value))
