"""Schema migrations: which are applied, which are pending, and applying them one transaction each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from convertq import sql
from convertq.sql import Migration
from convertq.worker.db import BoundedConnection, Database


class MigrationError(Exception):
    """One line: what is wrong and what to do."""


@dataclass(frozen=True)
class MigrationState:
    version: int
    name: str
    state: str  # applied, pending, edited, unknown
    applied_at: datetime | None


def migration_states(database: Database) -> list[MigrationState]:
    """What the files and the database know together, by version."""
    applied = {row["version"]: row for row in database.run("list_migrations")} if _has_list(database) else {}
    states = []
    for migration in sql.migrations():
        row = applied.pop(migration.version, None)
        same = row is not None and row["checksum"] == migration.checksum
        state = "pending" if row is None else "applied" if same else "edited"
        states.append(MigrationState(migration.version, migration.name, state, row["applied_at"] if row else None))
    for row in applied.values():
        states.append(MigrationState(row["version"], row["name"], "unknown", row["applied_at"]))
    return states


def migrate(connection: BoundedConnection, schema: str, to: int | None = None) -> list[Migration]:
    """Applies what is pending, up to version `to`; returns it. Two at once: the second finds nothing to do."""
    database = Database(connection, schema)
    known = {migration.version for migration in sql.migrations()}
    if to is not None and to not in known:
        raise MigrationError(f"there is no migration {to}: the newest is {max(known)}")
    done = []
    while migration := _apply_next(database, to):
        done.append(migration)
    return done


def _apply_next(database: Database, to: int | None) -> Migration | None:
    with database.transaction():  # the lock ends with it, so it works behind a transaction pooler too
        database.run("lock_migrations", name=database.schema)
        _make_list(database)
        states = migration_states(database)
        _refuse_what_does_not_fit(states, to)
        pending = {state.version for state in states if state.state == "pending"}
        for migration in sql.migrations():
            if migration.version in pending and (to is None or migration.version <= to):
                database.connection.execute(sql.in_schema(migration.text, database.schema).encode())
                database.run(
                    "record_migration",
                    version=migration.version,
                    name=migration.name,
                    checksum=migration.checksum,
                )
                return migration
    return None


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
        if state.state == "unknown":
            raise MigrationError(
                f"the database is at version {state.version} ({state.name}), which this convertq does not know: "
                "upgrade convertq"
            )
    newest = max((state.version for state in states if state.state == "applied"), default=0)
    if to is not None and to < newest:
        raise MigrationError(f"the database is at version {newest}: migrations do not go back to {to}")
