"""Runs statements by the name of their file in one schema, and checks that its tables fit this version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from convertq import sql
from convertq.queue.database.connection import (
    BEGIN_BEHIND_POOLER,
    IDLE_IN_TRANSACTION_TIMEOUT_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    BoundedConnection,
    SessionLimits,
    connect,
)
from convertq.queue.database.errors import DATABASE_ERRORS, READ_ONLY, SchemaError, server_is_gone
from convertq.queue.database.pipeline import BEGIN, COMMIT, Pipeline, Statement
from convertq.queue.database.pooled_pipeline import PooledPipeline
from convertq.queue.database.unreadable_row import UnreadableRow
from convertq.queue.database.url import DatabaseUrl
from psycopg.rows import DictRow
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

RECONNECT_SECONDS = 20.0  # A standby is promoted in less, where something promotes it by itself.


@dataclass(frozen=True)
class Reopening:
    """How a connection that is lost in the middle of a change is replaced, so that the change can be looked up."""

    connect: Callable[[], BoundedConnection]
    several_hosts: bool  # otherwise a server that is read-only stays so
    seconds: float = RECONNECT_SECONDS


class Database:
    """One connection and its schema. It is not shared between processes or threads."""

    def __init__(self, connection: BoundedConnection, schema: str, reopening: Reopening | None = None) -> None:
        self.schema, self._reopening = schema, reopening
        self._use(connection)

    def _use(self, connection: BoundedConnection) -> None:
        self.connection = connection
        self.pipeline: Pipeline | PooledPipeline = Pipeline(connection, self.schema)
        if connection.is_pooled:
            self.pipeline = PooledPipeline(connection, self.schema, BEGIN_BEHIND_POOLER, self.run)

    @classmethod
    def open(cls, url: DatabaseUrl, application_name: str, *, claims: bool = False, reopens: bool = False) -> Database:
        """Raises psycopg.Error when it is not reachable, SchemaError when its tables do not fit this version."""
        database = cls(connect(url, application_name, claims=claims), url.schema)
        if reopens:
            database._reopening = Reopening(
                lambda: connect(url.trying_last(database.connection.host), application_name, claims=claims),
                len(url.hosts) > 1,
            )
        try:
            database.check_schema()
        except BaseException:
            database.close()
            raise
        return database

    def reconnect_after(self, error: psycopg.Error) -> bool:
        """Replaces the connection if this error means that the server is gone; False: it does not, or no server can be
        reached."""
        reopening = self._reopening
        if reopening is None or not server_is_gone(error):
            return False
        if error.sqlstate == READ_ONLY and not reopening.several_hosts:
            return False
        self.close()
        retrying = Retrying(
            retry=retry_if_exception_type(DATABASE_ERRORS), stop=stop_after_delay(reopening.seconds),
            wait=wait_random_exponential(multiplier=0.1, max=1.0),
        )  # fmt: skip
        try:
            retrying(self._reconnect, reopening)
        except RetryError:
            return False
        return True

    def _reconnect(self, reopening: Reopening) -> None:
        self._use(reopening.connect())
        try:
            self.check_schema()
        except BaseException:
            self.close()
            raise

    def run(self, statement: str, /, **parameters: Any) -> list[DictRow]:
        """Raises UnreadableRow when the statement was executed and a value in its answer cannot be loaded."""
        cursor = self.connection.execute(sql.query(statement, self.schema), parameters)
        try:
            return cursor.fetchall() if cursor.description else []
        except Exception as error:
            raise UnreadableRow(error) from error

    def one(self, statement: str, /, **parameters: Any) -> DictRow | None:
        rows = self.run(statement, **parameters)
        return rows[0] if rows else None

    def run_prepared(self, statement: Statement) -> list[DictRow]:
        """A statement alone, by the pipeline, which costs the client less than `run` and shares its plan with
        pipelined_transaction."""
        return self.pipeline.run(statement)[0]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            if self.connection.is_pooled:  # elsewhere the session has these limits
                milliseconds = (LOCK_TIMEOUT_SECONDS * 1000, IDLE_IN_TRANSACTION_TIMEOUT_SECONDS * 1000)
                self.run("limit_transaction", lock_timeout=milliseconds[0], idle_timeout=milliseconds[1])
            yield

    @contextmanager
    def pipelined_transaction(
        self, *statements: Statement, at_commit: Sequence[Statement] = ()
    ) -> Iterator[list[list[DictRow]]]:  # fmt: skip
        """The rows of each statement, in a transaction of two round trips: BEGIN goes with the statements, and COMMIT
        with those that are in `at_commit` by the end of the block, except behind a pooler."""
        try:
            _, *rows = self.pipeline.run(BEGIN, *statements)
            yield rows
            self.pipeline.run(*at_commit, COMMIT)
        except BaseException:
            if not self.connection.closed:
                self.connection.rollback()
            raise

    def check_schema(self) -> None:
        """Older code works with a newer schema whose migrations all support it; newer code waits for its migrations.

        The first statement of a session also shows whether the session has the limits that it was opened with.
        """
        wanted = sql.migrations()[-1].version
        try:
            [row] = self.run("get_schema_version")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            row = {"version": 0}
        found = row["version"]
        if found < wanted:
            what = "has no convertq tables" if found == 0 else f"is at version {found}, and {wanted} is needed"
            raise SchemaError(f"the schema {self.schema} {what}: run `convertq migrate`")
        if row["supports_code_from"] > wanted:
            raise SchemaError(
                f"the schema {self.schema} is at version {found}, and this convertq knows {wanted}: upgrade convertq"
            )
        self._detect_pooler(row)

    def check_limits(self) -> None:
        """Detects a pooler like check_schema, for commands that work without the tables."""
        self._detect_pooler(self.run("get_session_limits")[0])

    def _detect_pooler(self, row: DictRow) -> None:
        """PgBouncer with `ignore_startup_parameters = options` accepts our options, and drops them."""
        if SessionLimits(row["statement_timeout_ms"], row["lock_timeout_ms"]) != self.connection.limits:
            self.connection.expect_pooler()
            self._use(self.connection)

    def close(self) -> None:
        self.connection.close()
