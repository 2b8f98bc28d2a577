"""The database connections of one web process: few, with a limit for every wait, used for one short transaction each.

During an outage of the database one request per second tries to connect and the others fail at once, so that requests
that need no database never wait behind those that do.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gevent
import psycopg
from convertq.queue.database.connection import CONNECT_TIMEOUT_SECONDS, BoundedConnection, connect
from convertq.queue.database.database import Database, Reopening
from convertq.queue.database.errors import SchemaError, server_is_gone
from convertq.queue.database.url import DatabaseUrl, Host
from convertq.queue.errors import one_line
from convertq.queue.log.lines import Log
from convertq.web.http_error import DatabaseDown
from gevent import monkey
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

_poll = monkey.get_original("select", "poll")  # gevent's poll would switch to other requests.

CONNECTIONS = 8  # Of one process. A request uses one for milliseconds, and none during an upload or download.
MAX_WAITING = 2000  # Requests: as many as a process accepts clients.
STATEMENT_TIMEOUT_SECONDS = 5
ANSWER_TIMEOUT_SECONDS = 7.0  # For a server or a network that sends nothing at all.
WAIT_SECONDS = 5.0  # For a free connection.
WAIT_WITH_A_FILE_SECONDS = 20.0  # For a free connection, after a client has sent a whole file.
RECONNECT_SECONDS = 1.0
LOOK_UP_SECONDS = 10.0  # For a new connection, after one was lost in the middle of a change.
#: The reasons of an outage that everybody may see.
NOT_REACHABLE, TIMED_OUT, ALL_IN_USE = (
    "the database is not reachable", "the database did not answer in time", "every connection is in use",
)  # fmt: skip
#: Errors that mean that the database cannot be used at the moment; any other error is a bug.
UNAVAILABLE = (
    psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, TooManyRequests, SchemaError,
    psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName,
)  # fmt: skip


def resolve_names(url: DatabaseUrl) -> None:
    """Raises OperationalError when the name server does not answer.

    libpq resolves names itself and blocks, so that this process would serve no request meanwhile. gevent's resolver
    waits in a thread. A name that does not exist is left to libpq, which reports it at once.
    """
    for host in [each.host for each in url.hosts if not each.hostaddr]:
        if not host or host.startswith(("/", "@")):
            continue
        try:
            with gevent.Timeout(CONNECT_TIMEOUT_SECONDS, TimeoutError()), contextlib.suppress(socket.gaierror):
                socket.getaddrinfo(host, None)
        except TimeoutError:
            raise psycopg.OperationalError(f"could not resolve {host}: the name server does not answer") from None


def check_if_readable(connection: psycopg.Connection[Any]) -> None:
    """Checks an idle connection with a round trip only if there is something to read from it.

    A server that closes a connection sends its reason, and the end of the stream is readable too. A check before every
    request would cost another round trip.
    """
    poll = _poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        ConnectionPool.check_connection(connection)


def is_standby(connection: psycopg.Connection[Any]) -> bool:
    """As the server reports it by itself, without a round trip."""
    return connection.info.parameter_status("in_hot_standby") == "on"


class Connections:
    """The pool is created before the fork and opened after it."""

    def __init__(self, url: DatabaseUrl, log: Log, *, down: str = "db_down", up: str = "db_up") -> None:
        """`down` and `up` are the events that are logged; empty: none."""
        self._url, self._log, self._down_event, self._up_event = url, log, down, up
        self._host: Host | None = None  # of the connection that was used last
        self._lost_host: Host | None = None  # It is tried last.
        self._pool = ConnectionPool(
            connection_class=self._connection_class(), min_size=0, max_size=CONNECTIONS, max_waiting=MAX_WAITING,
            timeout=WAIT_SECONDS, max_idle=60, reconnect_timeout=0, check=check_if_readable, open=False,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._reason, self._public_reason, self._reconnect_at = "", "", 0.0
        self._is_read_only = False
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())  # An outage is logged once, as db_down.
        logging.getLogger("psycopg.pool").propagate = False

    def open(self) -> None:
        self._pool.open()

    def close(self) -> None:
        self._pool.close(timeout=1)

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """Raises DatabaseDown."""
        with self.session() as database, database.transaction():
            yield database

    @contextmanager
    def reading(self) -> Iterator[Database]:
        """For statements that only read: each of them is its own transaction, which saves two round trips.

        Behind a connection pooler all of them are one transaction, because timeouts are set per transaction there.
        Raises DatabaseDown.
        """
        with self.session() as database:
            if database.connection.is_pooled:
                with database.transaction():
                    yield database
            else:
                yield database

    @contextmanager
    def session(self, wait_seconds: float = WAIT_SECONDS) -> Iterator[Database]:
        """For callers that open their own transactions. Raises DatabaseDown."""
        self._fail_during_outage()
        try:
            with self._pool.connection(wait_seconds) as connection, ExitStack() as replacements:
                self._host = connection.host
                if not (self._is_read_only and is_standby(connection)):
                    self._set_state("")
                reopening = Reopening(lambda: self._replace(replacements), len(self._url.hosts) > 1, LOOK_UP_SECONDS)
                database = Database(connection, self._url.schema, reopening)
                try:
                    yield database
                except psycopg.errors.ReadOnlySqlTransaction:
                    database.close()  # The pool replaces it: another host may be the primary now.
                    raise
        except UNAVAILABLE as error:
            raise self._down(error) from error

    def _replace(self, replacements: ExitStack) -> BoundedConnection:
        """A connection besides those of the pool, for the rest of a session whose own was lost."""
        self._lost_host = self._host
        opened = self._connect()
        replacements.callback(opened.close)
        return opened

    def _connection_class(self) -> type[BoundedConnection]:
        """psycopg's pool connects through a class; this one connects as every process of convertq does."""
        connections = self

        class PooledConnection(BoundedConnection):
            @classmethod
            def connect(cls, conninfo: str = "", **settings: Any) -> BoundedConnection:  # type: ignore[override]
                return connections._connect()

        return PooledConnection

    def _connect(self) -> BoundedConnection:
        """Runs in a thread of the pool, which discards the error; it is kept here for the requests that wait."""
        try:
            resolve_names(self._url)
            url = self._url.trying_last(self._lost_host)
            opened = connect(url, "convertq:web", statement_timeout=STATEMENT_TIMEOUT_SECONDS)
            opened.answer_timeout_seconds = ANSWER_TIMEOUT_SECONDS
            with ExitStack() as on_failure:
                on_failure.callback(opened.close)
                Database(opened, self._url.schema).check_schema()
                on_failure.pop_all()
        except Exception as error:
            self._set_outage(error)
            raise
        return opened

    def _fail_during_outage(self) -> None:
        """During a known outage, one request per second tries to connect and the others fail at once."""
        with self._lock:
            if not self._reason or self._is_read_only:  # A read-only server is still read from.
                return
            if time.monotonic() < self._reconnect_at:
                raise self._current_outage()
            self._reconnect_at = math.inf
        try:
            self._connect().close()
        except (psycopg.Error, SchemaError) as error:
            raise self._down(error) from error
        finally:
            self._reconnect_at = time.monotonic() + RECONNECT_SECONDS
        self._set_state("")

    def _down(self, error: BaseException) -> DatabaseDown:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            self._set_state(one_line(str(error)), NOT_REACHABLE, is_read_only=True)
            return self._current_outage()
        if isinstance(error, psycopg.Error) and error.sqlstate and not server_is_gone(error):
            return DatabaseDown(one_line(str(error)), TIMED_OUT)  # The server is up, but this statement failed.
        if isinstance(error, PoolTimeout | TooManyRequests):  # _connect has kept the reason, if there is one.
            return self._current_outage() if self._reason else DatabaseDown(ALL_IN_USE, ALL_IN_USE)
        self._set_outage(error)
        return self._current_outage()

    def _current_outage(self) -> DatabaseDown:
        return DatabaseDown(self._reason, self._public_reason)

    def _set_outage(self, error: BaseException) -> None:
        """Only a SchemaError is shown to everybody: libpq's messages name hosts, ports and roles."""
        reason = one_line(str(error))
        self._set_state(reason, reason if isinstance(error, SchemaError) else NOT_REACHABLE)

    def _set_state(self, reason: str, public_reason: str = "", *, is_read_only: bool = False) -> None:
        """Logs each change between up and down once."""
        with self._lock:
            before, self._reason, self._public_reason = self._reason, reason, public_reason
            self._lost_host = self._host if reason else self._lost_host
            self._is_read_only = is_read_only
        event = self._down_event if reason else self._up_event
        if event and bool(before) != bool(reason):
            fields = {"error_message": reason} if reason else {}
            self._log(event, **fields, pid=os.getpid())
