"""The command `convertq migrate`: the schema, made or brought up to date."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
import psycopg
from convertq.cli.context import (
    APPLICATION_NAME,
    complain,
    configuration,
    json_option,
    print_json,
    print_json_lines,
)
from convertq.cli.table import table
from convertq.sql import Migration
from convertq.worker import migrations
from convertq.worker.db import BoundedConnection, Database, connect

PATIENCE = 24 * 3600.0  # s: an index on a large table takes what it takes
WAIT_FOR_LOCK = 600.0  # s, in steps of the session's lock_timeout, so that nobody queues behind a waiting migration


@click.command(
    epilog="""\b
Example:
  convertq migrate
  convertq migrate --status
"""
)
@click.option("--status", is_flag=True, help="Only show which are applied.")
@click.option("--to", type=click.IntRange(1), metavar="VERSION", help="Stop at this version.")
@json_option
def migrate(status: bool, to: int | None, as_json: bool) -> None:
    """Create or update the database schema; safe when two run at once."""
    with patient_connection() as connection:
        if status:
            show_status(Database(connection, configuration().database.schema), as_json)
        else:
            tell(apply(connection, to), as_json)


@contextmanager
def patient_connection() -> Iterator[BoundedConnection]:
    connection = connect(configuration().database, APPLICATION_NAME, statement_timeout=0)
    connection.patience = PATIENCE
    try:
        yield connection
    finally:
        connection.close()


def apply(connection: BoundedConnection, to: int | None) -> list[Migration]:
    """Behind another migrate, or a table in use, it tries again; what was applied before stays applied."""
    deadline, told = time.monotonic() + WAIT_FOR_LOCK, False
    while True:
        try:
            return migrations.migrate(connection, configuration().database.schema, to)
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() > deadline:
                raise
            if not told:
                complain("convertq: waiting for a lock that somebody else holds")
            told = True


def tell(done: list[Migration], as_json: bool) -> None:
    if as_json:
        print_json({"applied": [{"version": each.version, "name": each.name} for each in done]})
        return
    for each in done:
        click.echo(f"applied {each.version:04} {each.name}")
    if not done:
        click.echo(f"nothing to do: the schema {configuration().database.schema} is up to date")


def show_status(database: Database, as_json: bool) -> None:
    states = migrations.migration_states(database)
    if as_json:
        print_json_lines(vars(state) for state in states)
        return
    rows = [
        (
            f"{state.version:04}",
            state.name,
            state.state,
            f"{state.applied_at:%Y-%m-%d %H:%M:%S %Z}" if state.applied_at else "",
        )
        for state in states
    ]
    for line in table(("VERSION", "NAME", "STATE", "APPLIED AT"), rows):
        click.echo(line)
