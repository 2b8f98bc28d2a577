"""The command `convertq metrics`: Prometheus exposition text, printed or for a textfile collector."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import click
import psycopg
from convertq.cli.context import configuration, open_database


@click.command(
    epilog="""\b
Example:
  convertq metrics
  convertq metrics --textfile /var/lib/node_exporter/convertq.prom
"""
)
@click.option(
    "--textfile",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Write to this file instead, in one step.",
)
def metrics(textfile: Path | None) -> None:
    """Print Prometheus metrics of the whole cluster, from the database."""
    from convertq.queue.counters import aggregate_counters
    from convertq.queue.metrics import metrics_text

    with open_database() as database:
        # A role that may only read gets the same numbers: metrics_text adds the events that are not aggregated.
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
            aggregate_counters(database)
        text = metrics_text(database, configuration())
    if textfile:
        replace_file(textfile, text)
    else:
        click.echo(text.decode(), nl=False)


def replace_file(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one. The temporary name does not end in .prom, so no collector reads it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
