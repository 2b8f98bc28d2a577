"""The connection: bounded in every wait, holding nothing open, and running statements by the name of their file."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import psycopg
from convertq import sql
from convertq.worker.database_url import DatabaseUrl
from convertq.worker.trip import Trips
from psycopg import sql as quoting
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

Result = TypeVar("Result")

#: seconds. The server gives up first, so that its reason is heard; the client's own limit is for a server, or a
#: network, that says nothing at all, which TCP does not notice while something in between acknowledges.
CONNECT_TIMEOUT = 5
STATEMENT_TIMEOUT = 10
LOCK_TIMEOUT = 5
IDLE_IN_TRANSACTION_TIMEOUT = 15
PATIENCE = 12

#: In a table that was never analysed (new, restored, filled at once) all of the queue looks like a few rows, which the
#: planner would read and sort for each claim. Whoever may not sort reads jobs_claimable in its order.
NO_SORT = "-c enable_sort=off"
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": PATIENCE * 1000,
}
#: SQLSTATE classes of a server that cannot be used at all; others are about one statement
NOT_CONNECTED = ("08", "28", "3D", "53", "57P")
TOO_MANY_CONNECTIONS = "53300"
#: and its words: libpq keeps no SQLSTATE of a refused connection
SERVER_IS_FULL = ("sorry, too many clients already", "remaining connection slots are reserved")
OWN_LIMIT_IS_REACHED = ("too many connections for role", "too many connections for database")


def is_full(error: psycopg.Error) -> bool:
    """The database is there, and has no connection left for this role."""
    words = SERVER_IS_FULL + OWN_LIMIT_IS_REACHED
    return error.sqlstate == TOO_MANY_CONNECTIONS or any(each in str(error) for each in words)


class SchemaError(Exception):
    """The database is there, but not the tables that this version needs; the message says what to do."""


class BoundedConnection(psycopg.Connection[DictRow]):
    """A connection on which no statement waits for longer than `patience`."""

    patience: float = PATIENCE
    is_pooled: bool = False  # a transaction pooler is in between: nothing of a session may be relied on

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **kwargs: Any) -> Result:
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        # psycopg resumes the generator every tenth of a second even when nothing arrives
        deadline = time.monotonic() + self.patience
        try:
            wanted = next(gen)
            while True:
                arrived = yield wanted
                if time.monotonic() > deadline:
                    self.give_up()
                wanted = gen.send(arrived)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def give_up(self) -> NoReturn:
        self.pgconn.finish()
        raise psycopg.OperationalError(f"no answer from the database for {self.patience:.0f} s")


def connect(
    url: DatabaseUrl, application_name: str, *, statement_timeout: float = STATEMENT_TIMEOUT, claims: bool = False
) -> BoundedConnection:
    """Autocommit: a transaction is open only where the code says so, and never around a gateway call."""
    given = conninfo_to_dict(url.conninfo)
    settings: dict[str, Any] = {
        **KEEPALIVE,
        "connect_timeout": given.get("connect_timeout") or CONNECT_TIMEOUT,
    }
    settings["application_name"] = application_name
    if not url.pooled:
        settings["options"] = (
            f"{given.get('options') or ''} {_session_options(statement_timeout, claims=claims)}".strip()
        )
    try:
        return _open(url, settings, pooled=url.pooled)
    except psycopg.OperationalError as error:
        # PgBouncer refuses session settings: they would stick to a connection that others use next
        if "unsupported startup parameter" not in str(error):
            raise
        del settings["options"]
        return _open(url, settings, pooled=True)


def _open(url: DatabaseUrl, settings: dict[str, Any], *, pooled: bool) -> BoundedConnection:
    prepare = None if pooled else 1
    connection = BoundedConnection.connect(
        url.conninfo, autocommit=True, row_factory=dict_row, prepare_threshold=prepare, **settings
    )
    connection.is_pooled = pooled
    return connection


def _session_options(statement_timeout: float, *, claims: bool) -> str:
    limits = {
        "statement_timeout": statement_timeout,
        "lock_timeout": LOCK_TIMEOUT,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_TIMEOUT,
    }
    options = [f"-c {name}={int(seconds * 1000)}" for name, seconds in limits.items()]
    return " ".join([*options, NO_SORT] if claims else options)


def application_name(holder: str) -> str:
    """`convertq:<server>/<slot>`, shortened in the middle: PostgreSQL cuts at 63 bytes and the slot must survive."""
    server, _, slot = holder.rpartition("/")
    room = 63 - len(f"convertq:/{slot}".encode())
    return f"convertq:{server.encode()[-room:].decode(errors='ignore')}/{slot}"


class Database:
    """One connection and the schema that it works in. Not shared between processes or threads."""

    def __init__(self, connection: BoundedConnection, schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self.trips = Trips(connection, schema)

    @classmethod
    def open(cls, url: DatabaseUrl, application_name: str, *, claims: bool = False) -> Database:
        """Raises psycopg.Error when it is not reachable, SchemaError when its tables do not fit this version."""
        database = cls(connect(url, application_name, claims=claims), url.schema)
        try:
            database.check_schema()
        except BaseException:
            database.close()
            raise
        return database

    def run(self, statement: str, /, **parameters: Any) -> list[DictRow]:
        cursor = self.connection.execute(sql.query(statement, self.schema), parameters)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, /, **parameters: Any) -> DictRow | None:
        rows = self.run(statement, **parameters)
        return rows[0] if rows else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            if self.connection.is_pooled:  # elsewhere the session has these limits
                milliseconds = (LOCK_TIMEOUT * 1000, IDLE_IN_TRANSACTION_TIMEOUT * 1000)
                self.run("limit_transaction", lock_timeout=milliseconds[0], idle_timeout=milliseconds[1])
            yield

    def listen(self) -> None:
        """Not through a pooler: it would listen for whoever uses the connection next."""
        if not self.connection.is_pooled:
            self.connection.execute(quoting.SQL("LISTEN {}").format(quoting.Identifier(self.channel)))

    @property
    def channel(self) -> str:
        return f"convertq_{self.schema[:50]}"

    def check_schema(self) -> None:
        wanted = sql.migrations()[-1].version
        try:
            found = self.run("get_schema_version")[0]["version"]
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            found = 0
        if found < wanted:
            what = "has no convertq tables" if found == 0 else f"is at version {found}, and {wanted} is needed"
            raise SchemaError(f"the schema {self.schema} {what}: run `convertq migrate`")
        if found > wanted:
            raise SchemaError(
                f"the schema {self.schema} is at version {found}, and this convertq knows {wanted}: upgrade convertq"
            )

    def close(self) -> None:
        self.connection.close()
