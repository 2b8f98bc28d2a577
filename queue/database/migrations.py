"""Schema migrations: which are applied, which are pending, and applying them beside a queue that works."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from convertq import sql
from convertq.queue.database.connection import (
    IDLE_IN_TRANSACTION_TIMEOUT_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    BoundedConnection,
)
from convertq.queue.database.database import Database
from convertq.sql import Migration as Migration
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, stop_never, wait_exponential, wait_random

ENCODING = "UTF8"
HOW_TO_GET_UTF8 = "restore it into one made by CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'"
#: Other sessions queue behind a session that waits for a lock, so the lock is requested in short tries with pauses.
LOCK_TRY_MS = 200
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, JITTER_SECONDS = 0.5, 4.0, 0.5
CONCURRENT_INDEX = re.compile(r"CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+IF\s+NOT\s+EXISTS\s+(\w+)", re.IGNORECASE)


class MigrationError(Exception):
    """One line: what is wrong and what to do."""


class AnotherMigration(Exception):
    """Another migrate works in this schema."""


IN_THE_WAY = (AnotherMigration, psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


@dataclass(frozen=True)
class LockHolder:
    """The session that a migration waits for, as far as this user may see it."""

    pid: int | None = None  # None: nobody any more, or a prepared transaction
    application: str | None = None
    since: datetime | None = None  # when its transaction began


@dataclass(frozen=True)
class MigrationState:
    version: int
    name: str
    state: str  # applied, pending, edited, unknown
    applied_at: datetime | None
    supports_code_from: int


def migration_states(database: Database) -> list[MigrationState]:
    """What the files and the database know together, by version."""
    applied = {row["version"]: row for row in database.run("list_migrations")} if _has_list(database) else {}
    states = []
    for migration in sql.migrations():
        row = applied.pop(migration.version, None)
        same = row is not None and row["checksum"] == migration.checksum
        state = "pending" if row is None else "applied" if same else "edited"
        supports = row["supports_code_from"] if row else migration.supports_code_from
        states.append(
            MigrationState(migration.version, migration.name, state, row["applied_at"] if row else None, supports)
        )
    for row in applied.values():
        states.append(
            MigrationState(row["version"], row["name"], "unknown", row["applied_at"], row["supports_code_from"])
        )
    return states


def unsupported(states: list[MigrationState]) -> list[MigrationState]:
    """Migrations of later releases that this code does not work with."""
    newest = sql.migrations()[-1].version
    return [state for state in states if state.state == "unknown" and state.supports_code_from > newest]


def migrate(
    connection: BoundedConnection,
    schema: str,
    to: int | None = None,
    *,
    timeout: float | None = None,
    waits: Callable[[LockHolder], None] = lambda holder: None,
) -> list[Migration]:
    """Applies what is pending, up to version `to`; returns it. Two at once: the second finds nothing to do.

    Waits for other sessions, at most for `timeout` seconds; `waits` is called with their names before each pause.
    """
    database = Database(connection, schema)
    _refuse_other_encodings(database)
    known = {migration.version for migration in sql.migrations()}
    if to is not None and to not in known:
        raise MigrationError(f"there is no migration {to}: the newest is {max(known)}")
    retrying = Retrying(
        retry=retry_if_exception_type(IN_THE_WAY),
        wait=wait_exponential(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS) + wait_random(0, JITTER_SECONDS),
        stop=stop_never if timeout is None else stop_after_delay(timeout),
        before_sleep=lambda state: waits(find_lock_holder(database)),
        reraise=True,
    )
    done = []
    while migration := retrying(_apply_next, database, to):
        done.append(migration)
    return done


def find_lock_holder(database: Database) -> LockHolder:
    row = database.one("find_lock_holder", schema_name=database.schema)
    return LockHolder(row["pid"], row["application"], row["since"]) if row else LockHolder()


def encoding_of(database: Database) -> str:
    """As the server reports it to every new session."""
    return database.connection.info.parameter_status("server_encoding") or "unknown"


def _refuse_other_encodings(database: Database) -> None:
    if (encoding := encoding_of(database)) != ENCODING:
        name = database.connection.info.dbname
        what = f"the database {name} has the encoding {encoding}, and convertq needs {ENCODING}"
        raise MigrationError(f"{what}: {HOW_TO_GET_UTF8}")


def _apply_next(database: Database, to: int | None) -> Migration | None:
    with database.transaction():  # the lock ends with it, so it works behind a transaction pooler too
        idle_timeout = IDLE_IN_TRANSACTION_TIMEOUT_SECONDS * 1000
        database.run("limit_transaction", lock_timeout=LOCK_TRY_MS, idle_timeout=idle_timeout)
        _take_lock(database, "lock_migrations")
        _make_list(database)
        migration = _next_pending(database, to)
        if migration is None:
            return None
        if not migration.runs_outside:
            database.connection.execute(sql.in_schema(migration.text, database.schema).encode())
            _record(database, migration)
            return migration
    return _apply_outside(database, migration)


def _next_pending(database: Database, to: int | None) -> Migration | None:
    states = migration_states(database)
    _refuse_what_does_not_fit(states, to)
    pending = {state.version for state in states if state.state == "pending"}
    wanted = (each for each in sql.migrations() if each.version in pending and (to is None or each.version <= to))
    return next(wanted, None)


def _apply_outside(database: Database, migration: Migration) -> Migration:
    """May be interrupted anywhere and run again: it is recorded last, and what is half built is dropped first."""
    if database.connection.is_pooled:
        what = f"migration {migration.version} ({migration.name}) cannot be applied through a transaction pooler"
        raise MigrationError(f"{what}: name PostgreSQL itself in DATABASE_DIRECT_URL")
    with _session_lock(database):
        now = {state.version: state.state for state in migration_states(database)}
        if now[migration.version] != "pending":
            raise AnotherMigration("another migrate was faster")
        _drop_invalid_indexes(database, migration)
        for statement in migration.statements:
            database.connection.execute(sql.in_schema(statement, database.schema).encode())
        _record(database, migration)
    return migration


@contextmanager
def _session_lock(database: Database) -> Iterator[None]:
    """No limit on waits: CREATE INDEX CONCURRENTLY waits for old transactions, and nobody queues behind it."""
    _take_lock(database, "lock_migrations_for_session")
    database.run("set_lock_timeout", milliseconds=0)
    try:
        yield
    finally:
        if not database.connection.closed:
            database.run("set_lock_timeout", milliseconds=LOCK_TIMEOUT_SECONDS * 1000)
            database.run("unlock_migrations", name=database.schema)


def _take_lock(database: Database, statement: str) -> None:
    if not database.run(statement, name=database.schema)[0]["locked"]:
        raise AnotherMigration("another migrate works in this schema")


def _drop_invalid_indexes(database: Database, migration: Migration) -> None:
    names = CONCURRENT_INDEX.findall(migration.text)
    for row in database.run("find_invalid_indexes", schema_name=database.schema, names=names):
        database.connection.execute(row["removal"].encode())


def _record(database: Database, migration: Migration) -> None:
    values: dict[str, Any] = {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
    database.run("record_migration", **values, supports_code_from=migration.supports_code_from)


def _make_list(database: Database) -> None:
    if not database.run("schema_exists", name=database.schema)[0]["found"]:
        database.run("create_schema")
    if not _has_list(database):
        database.run("create_schema_migrations")


def _has_list(database: Database) -> bool:
    return bool(database.run("has_schema_migrations", name=database.schema)[0]["found"])


def _refuse_what_does_not_fit(states: list[MigrationState], to: int | None) -> None:
    for state in states:
        if state.state == "edited":
            raise MigrationError(
                f"migration {state.version} ({state.name}) was edited after it was applied: "
                "restore its file; changes go into a new migration"
            )
    for state in unsupported(states):
        raise MigrationError(
            f"the database is at version {state.version} ({state.name}), which this convertq does not know: "
            "upgrade convertq"
        )
    newest = max((state.version for state in states if state.state == "applied"), default=0)
    if to is not None and to < newest:
        raise MigrationError(f"the database is at version {newest}: migrations do not go back to {to}")
