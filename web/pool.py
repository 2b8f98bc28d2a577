"""The connections of one web process: few, bounded in every wait, taken for one short transaction at a time.

While the database is away one request in a second tries it and the others are told at once, so that a page that needs
no database is never kept waiting behind those that do.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from convertq.web.refusal import DatabaseDown
from convertq.worker.config import Config
from convertq.worker.db import NOT_CONNECTED, BoundedConnection, Database, SchemaError, connect
from convertq.worker.errors import one_line
from convertq.worker.log import Log
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

CONNECTIONS = 8  # of one process; a request holds one for milliseconds, and none while it uploads or downloads
MAX_WAITING = 100  # requests
STATEMENT_TIMEOUT = 5  # s
PATIENCE = 7.0  # s: for a server, or a network, that says nothing at all
WAIT = 2.0  # s for a connection
TRY_AGAIN_AFTER = 1.0  # s
#: what says that the database cannot be used now; any other error is a bug, and is shown as one
AWAY = (
    psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, TooManyRequests, SchemaError,
    psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName,
)  # fmt: skip


class Connections:
    """Made before the fork, opened after it."""

    def __init__(self, config: Config, log: Log) -> None:
        self._url, self._log = config.database, log
        self._pool = ConnectionPool(
            connection_class=self._connection_class(), min_size=0, max_size=CONNECTIONS, max_waiting=MAX_WAITING,
            timeout=WAIT, max_idle=60, reconnect_timeout=0, check=ConnectionPool.check_connection, open=False,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._reason, self._try_at = "", 0.0
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())  # this says it once, and in one line
        logging.getLogger("psycopg.pool").propagate = False

    def open(self) -> None:
        self._pool.open()

    def close(self) -> None:
        self._pool.close(timeout=1)

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """One transaction of one request. Raises DatabaseDown."""
        with self.session() as database, database.transaction():
            yield database

    @contextmanager
    def session(self) -> Iterator[Database]:
        """For what makes its own transactions. Raises DatabaseDown."""
        self._refuse_while_away()
        try:
            with self._pool.connection() as connection:
                self._note("")
                yield Database(connection, self._url.schema)
        except AWAY as error:
            raise self._down(error) from error

    def _connection_class(self) -> type[BoundedConnection]:
        """psycopg's pool makes a connection by its class; ours is made as every process of convertq makes it."""
        connections = self

        class PooledConnection(BoundedConnection):
            @classmethod
            def connect(cls, conninfo: str = "", **settings: Any) -> BoundedConnection:  # type: ignore[override]
                return connections._connect()

        return PooledConnection

    def _connect(self) -> BoundedConnection:
        """On a thread of the pool, which keeps no reason: it is noted here for whoever waits."""
        try:
            opened = connect(self._url, "convertq:web", statement_timeout=STATEMENT_TIMEOUT)
            opened.patience = PATIENCE
            with ExitStack() as on_failure:
                on_failure.callback(opened.close)
                Database(opened, self._url.schema).check_schema()
                on_failure.pop_all()
        except Exception as error:
            self._note(one_line(str(error)))
            raise
        return opened

    def _refuse_while_away(self) -> None:
        """Once it is known to be away: of those that come within a second one alone tries, and waits only for that."""
        with self._lock:
            if not self._reason:
                return
            if time.monotonic() < self._try_at:
                raise DatabaseDown(self._reason)
            self._try_at = math.inf
        try:
            self._connect().close()
        except (psycopg.Error, SchemaError) as error:
            raise self._down(error) from error
        finally:
            self._try_at = time.monotonic() + TRY_AGAIN_AFTER
        self._note("")

    def _down(self, error: BaseException) -> DatabaseDown:
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        if state and not state.startswith(NOT_CONNECTED):
            return DatabaseDown(one_line(str(error)))  # it is there, and could not do this just now
        if isinstance(error, PoolTimeout | TooManyRequests):  # who could not connect has noted why; else all are in use
            return DatabaseDown(self._reason or "every connection is in use")
        self._note(one_line(str(error)))
        return DatabaseDown(self._reason)

    def _note(self, reason: str) -> None:
        """Each change is logged once."""
        with self._lock:
            before, self._reason = self._reason, reason
        if bool(before) != bool(reason):
            told = {"error_message": reason} if reason else {}
            self._log("db_down" if reason else "db_up", **told, pid=os.getpid())
