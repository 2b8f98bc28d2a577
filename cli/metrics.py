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
    help="Write to this file instead, whole or not at all.",
)
def metrics(textfile: Path | None) -> None:
    """Print Prometheus metrics of the whole cluster, from the database."""
    from convertq.worker.counters import fold_counters
    from convertq.worker.metrics import metrics_text

    with open_database() as database:
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
            fold_counters(database)  # who may only read is served as well: what is not folded is added
        text = metrics_text(database, configuration())
    if textfile:
        replace_file(textfile, text)
    else:
        click.echo(text.decode(), nl=False)


def replace_file(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one; the temporary name does not end in .prom, so no collector takes it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
