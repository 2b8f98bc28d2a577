"""The command `convertq migrate`: creates or updates the database schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from convertq.cli.context import (
    APPLICATION_NAME,
    complain,
    configuration,
    json_option,
    print_json,
    print_json_lines,
)
from convertq.cli.exit_code import ExitCode, Stop
from convertq.cli.formatting import shown
from convertq.cli.table import table
from convertq.queue.database import migrations
from convertq.queue.database.connection import BoundedConnection, connect
from convertq.queue.database.database import Database
from convertq.queue.database.migrations import IN_THE_WAY, LockHolder, Migration
from convertq.queue.event_partitions import make_event_partitions
from convertq.queue.queue_events import operator_at_terminal, record_operator

PARTITIONS_SECONDS = 5.0  # a supervisor creates what a lock has kept this command from creating
FIRST_VERSION_WITH_A_LOG = 10  # of the queue: 0010_control.sql
ANSWER_TIMEOUT_SECONDS = 24 * 3600.0  # an index on a large table may take hours


@click.command(
    epilog="""\b
Example:
  convertq migrate
  convertq migrate --status
  convertq migrate --timeout 300
"""
)
@click.option("--status", is_flag=True, help="Only show which migrations are applied.")
@click.option("--to", type=click.IntRange(1), metavar="VERSION", help="Stop at this version.")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Give up when another session keeps a lock this long, with exit code 1. Default: wait.",
)
@json_option
def migrate(status: bool, to: int | None, timeout: float | None, as_json: bool) -> None:
    """Create or update the database schema; safe when two run at once.

    Workers and commands continue meanwhile: a lock is requested for 0.2 s at a time, with pauses of up to 4 s.
    """
    with open_connection() as connection:
        if status:
            show_status(Database(connection, configuration().direct_database.schema), as_json)
        else:
            print_applied(apply(connection, to, timeout), as_json)


@contextmanager
def open_connection() -> Iterator[BoundedConnection]:
    connection = connect(configuration().direct_database, APPLICATION_NAME, statement_timeout=0)
    connection.answer_timeout_seconds = ANSWER_TIMEOUT_SECONDS
    try:
        Database(connection, configuration().direct_database.schema).check_limits()
        yield connection
    finally:
        connection.close()


def apply(connection: BoundedConnection, to: int | None, timeout: float | None) -> list[Migration]:
    """Each session that holds a lock is named once. Migrations that were applied before a timeout stay applied."""
    reported: list[str] = []

    def waits(holder: LockHolder) -> None:
        line = f"waiting for {in_words(holder)}"
        if line not in reported:
            complain(f"convertq: {line}")
            reported.append(line)

    schema = configuration().direct_database.schema
    try:
        done = migrations.migrate(connection, schema, to, timeout=timeout, waits=waits)
        if to is None:
            make_event_partitions(Database(connection, schema), PARTITIONS_SECONDS)
        record_migrations(Database(connection, schema), done)
        return done
    except IN_THE_WAY as error:
        reason = reported[-1] if reported else "another session holds a lock"
        raise Stop(ExitCode.FAILED, f"gave up after {timeout:g} s {reason}; run it again") from error


def record_migrations(database: Database, done: list[Migration]) -> None:
    """In the log of the queue, if there is one at this version."""
    if done and done[-1].version >= FIRST_VERSION_WITH_A_LOG:
        versions = f"{done[0].version:04} to {done[-1].version:04}" if len(done) > 1 else f"{done[0].version:04}"
        record_operator(database, operator_at_terminal(), "migrate", versions=versions)


def in_words(holder: LockHolder) -> str:
    if holder.pid is None:
        return "a lock that another session or a prepared transaction holds"
    since = f", in a transaction since {holder.since:%Y-%m-%d %H:%M:%S %Z}" if holder.since else ""
    return f"session {holder.pid} ({shown(holder.application or 'without a name')}{since})"


def print_applied(done: list[Migration], as_json: bool) -> None:
    if as_json:
        print_json({"applied": [{"version": each.version, "name": each.name} for each in done]})
        return
    for each in done:
        click.echo(f"applied {each.version:04} {each.name}")
    if not done:
        click.echo(f"nothing to do: the schema {configuration().direct_database.schema} is up to date")


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
            f"{state.supports_code_from:04}",
        )
        for state in states
    ]
    for line in table(("VERSION", "NAME", "STATE", "APPLIED AT", "SUPPORTS CODE FROM"), rows):
        click.echo(line)
