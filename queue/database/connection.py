"""A connection to PostgreSQL on which every wait is bounded and the session settings are known."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, NamedTuple, NoReturn, TypeVar

import psycopg
from convertq import sql
from convertq.queue.database.timestamp_loaders import TIMESTAMP_ADAPTERS
from convertq.queue.database.url import DatabaseUrl, Host
from psycopg import IsolationLevel
from psycopg.rows import DictRow, dict_row

Result = TypeVar("Result")

#: The server's limits are shorter than ANSWER_TIMEOUT_SECONDS, so that its error arrives. The client's own limit is for
#: a server or network that does not answer at all, which TCP does not notice while a device in between acknowledges.
CONNECT_TIMEOUT_SECONDS = 5
STATEMENT_TIMEOUT_SECONDS = 10
LOCK_TIMEOUT_SECONDS = 5
IDLE_IN_TRANSACTION_TIMEOUT_SECONDS = 15
ANSWER_TIMEOUT_SECONDS = 12

#: In a table that was never analysed (new, restored, filled at once) all of the queue looks like a few rows, which the
#: planner would read and sort for each claim. A session that may not sort reads the index jobs_claimable in its order.
#: Its statements are planned once: by its estimates PostgreSQL would plan the largest of them again for every job,
#: which costs as much as running it (0.4 ms of CPU).
CLAIMING_OPTIONS = ("-c enable_sort=off", "-c plan_cache_mode=force_generic_plan")
#: The same for one transaction of a worker, where a pooler allows no settings of the session.
BEGIN_BEHIND_POOLER = sql.begin_behind_pooler(LOCK_TIMEOUT_SECONDS * 1000, IDLE_IN_TRANSACTION_TIMEOUT_SECONDS * 1000)
#: Parameters of libpq. The URL, the service file and the environment take precedence over them.
CONNECTION_DEFAULTS = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": ANSWER_TIMEOUT_SECONDS * 1000,
}
#: Session settings that ALTER DATABASE or ALTER ROLE may have changed: psycopg reads timestamps only in this style, and
#: the statements are written for this isolation level. In an option a space is escaped.
REQUIRED_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "default_transaction_isolation": r"read\ committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
}
#: The values that set_reported_parameters sets.
REPORTED_PARAMETERS = {"DateStyle": "ISO", "TimeZone": "UTC", "client_encoding": "UTF8"}


class SessionLimits(NamedTuple):
    statement_ms: int
    lock_ms: int


class BoundedConnection(psycopg.Connection[DictRow]):
    """A connection on which no statement waits for longer than `answer_timeout_seconds`."""

    answer_timeout_seconds: float = ANSWER_TIMEOUT_SECONDS
    is_pooled: bool = False  # a transaction pooler is in between: session settings and locks do not last
    prepares_behind_pooler: bool = True
    host: Host | None = None  # the one of several that it is connected to
    limits: SessionLimits  # as requested; a pooler may drop them silently

    def expect_pooler(self) -> None:
        """Stops preparing statements, which the next server connection does not have, and names the isolation level."""
        self.is_pooled, self.prepare_threshold = True, None
        self.isolation_level, self.read_only, self.deferrable = IsolationLevel.READ_COMMITTED, False, False

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **kwargs: Any) -> Result:
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        # psycopg resumes the generator every tenth of a second even when nothing arrives.
        deadline = time.monotonic() + self.answer_timeout_seconds
        try:
            wanted = next(gen)
            while True:
                arrived = yield wanted
                if time.monotonic() > deadline:
                    self.close_unanswered()
                wanted = gen.send(arrived)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def close_unanswered(self) -> NoReturn:
        self.pgconn.finish()
        raise psycopg.OperationalError(f"no answer from the database for {self.answer_timeout_seconds:.0f} s")


def connect(
    url: DatabaseUrl,
    application_name: str,
    *,
    statement_timeout: float = STATEMENT_TIMEOUT_SECONDS,
    claims: bool = False,
) -> BoundedConnection:
    """Opens a connection in autocommit mode: no transaction is open unless the code begins one."""
    chosen = {name: value for name, value in url.parameters.items() if name in CONNECTION_DEFAULTS}
    settings: dict[str, Any] = {**CONNECTION_DEFAULTS, **chosen}
    settings |= {**url.host_parameters, "application_name": application_name, "client_encoding": "UTF8"}
    limits = SessionLimits(int(statement_timeout * 1000), LOCK_TIMEOUT_SECONDS * 1000)
    if not url.pooled:
        ours = _session_options(limits, url.schema, claims=claims)
        settings["options"] = f"{url.parameters.get('options', '')} {ours}".strip()
    try:
        return _open(url, settings, limits, pooled=url.pooled)
    except psycopg.OperationalError as error:
        # PgBouncer refuses session settings: they would stay on a server connection that other clients use next.
        if "unsupported startup parameter" not in str(error):
            raise
        del settings["options"]
        return _open(url, settings, limits, pooled=True)


def _open(url: DatabaseUrl, settings: dict[str, Any], limits: SessionLimits, *, pooled: bool) -> BoundedConnection:
    connection = BoundedConnection.connect(
        url.conninfo, autocommit=True, row_factory=dict_row, prepare_threshold=1, context=TIMESTAMP_ADAPTERS, **settings
    )
    connection.prepares_behind_pooler = url.prepares
    connection.limits, connection.host = limits, url.host_of(connection.info.host, connection.info.port)
    if pooled:
        connection.expect_pooler()
    try:
        _set_reported_parameters(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_reported_parameters(connection: BoundedConnection) -> None:
    """Sets what differs. The server reports these parameters by itself, so the check needs no round trip. Behind a
    pooler the startup options are missing, and PGDATESTYLE and PGTZ of the environment are applied after them.
    PgBouncer keeps these settings for each client."""
    reported = {name: connection.info.parameter_status(name) or "" for name in REPORTED_PARAMETERS}
    if any(not reported[name].startswith(value) for name, value in REPORTED_PARAMETERS.items()):
        connection.execute(sql.query("set_reported_parameters", ""))


def _session_options(limits: SessionLimits, schema: str, *, claims: bool) -> str:
    values = {
        **REQUIRED_SETTINGS,
        "search_path": ",".join(f'"{name}"' for name in dict.fromkeys((schema, "public"))),
        "statement_timeout": limits.statement_ms,
        "lock_timeout": limits.lock_ms,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_TIMEOUT_SECONDS * 1000,
        # A server with LLVM would compile statements that it takes for expensive, 0.2 to 0.5 s for each execution.
        "jit": "off",
    }
    options = [f"-c {name}={value}" for name, value in values.items()]
    return " ".join([*options, *CLAIMING_OPTIONS] if claims else options)


def application_name(holder: str) -> str:
    """`convertq:<server>/<slot>`, shortened in the middle: PostgreSQL cuts at 63 bytes and the slot must survive."""
    server, _, slot = holder.rpartition("/")
    room = 63 - len(f"convertq:/{slot}".encode())
    return f"convertq:{server.encode()[-room:].decode(errors='ignore')}/{slot}"
