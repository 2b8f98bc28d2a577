"""The URL of a database as Prisma and libpq both write it: what libpq gets to see of it, its schema and its hosts."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import unquote

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

SHAPE = "must be postgresql://user:password@host:port/database"
SCHEMES = ("postgresql://", "postgres://")
SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Prisma's own, which libpq refuses
PRISMA_PARAMETERS = frozenset(
    {
        "connection_limit", "max_connection_lifetime", "max_idle_connection_lifetime", "pgbouncer", "pool_timeout",
        "schema", "single_use_connections", "socket_timeout", "sslaccept", "sslidentity", "statement_cache_size",
    }
)  # fmt: skip
#: libpq reads these only when it opens a TCP connection
WHOLE_NUMBERS = (
    "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
)  # fmt: skip
DEFAULT_PORT = "5432"
TARGET = "target_session_attrs"
READ_WRITE, PREFER_STANDBY = "read-write", "prefer-standby"
NO_SSLMODE = "none: read the parameters and stop"
NOWHERE = "/nonexistent/convertq"


class Host(NamedTuple):
    """One of the servers that a URL names, as libpq has it: an address without a name has a hostaddr alone."""

    host: str
    hostaddr: str
    port: str

    @property
    def shown(self) -> str:
        return f"{self.host or self.hostaddr or 'the local socket'}:{self.port}"


@dataclass(frozen=True)
class DatabaseUrl:
    conninfo: str = field(repr=False)  # may hold a password
    schema: str
    pooled: bool  # whether the URL says that a transaction pooler is in between
    #: what libpq makes of it, with the service file, the environment and the defaults; without the password
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    names_schema: bool = False  # otherwise the schema is the default
    hosts: tuple[Host, ...] = ()  # in the order in which they are tried
    prepares: bool = True  # whether statements may be prepared where a pooler is in between

    @property
    def shown(self) -> str:
        """The addresses for people, without the password."""
        known = self.parameters
        return f"{','.join(host.shown for host in self.hosts)}/{known.get('dbname') or known.get('user') or ''}"

    @property
    def host_parameters(self) -> dict[str, str]:
        """For psycopg, which tries several hosts one by one, each with its own timeout, if it is told of them: of those
        in a service file or in PGHOST it does not know."""
        if len(self.hosts) < 2:
            return {}
        columns = {name: [getattr(host, name) for host in self.hosts] for name in Host._fields}
        return {name: ",".join(values) for name, values in columns.items() if any(values)}

    def host_of(self, host: str, port: int) -> Host | None:
        """The host that an open connection names as its own."""
        return next((each for each in self.hosts if (each.host or each.hostaddr, each.port) == (host, str(port))), None)

    def trying_last(self, lost: Host | None) -> DatabaseUrl:
        """For a process that has lost this host: another one may be the primary now, and while the lost one is silent,
        trying it takes as long as the connect timeout."""
        others = tuple(host for host in self.hosts if host != lost)
        return replace(self, hosts=others + tuple(host for host in self.hosts if host == lost))


def parse_database_url(text: str, *, several_hosts: str = READ_WRITE) -> DatabaseUrl:
    """`several_hosts` is the target_session_attrs of a URL that names several hosts and no target_session_attrs.

    Raises ValueError with a message that shows no secret.
    """
    if not text.startswith(SCHEMES):
        raise ValueError(SHAPE)
    base, query = _split_query(text)
    named = {unquote(name): unquote(value) for name, _, value in (part.partition("=") for part in query)}
    schema = named.get("schema", "public")
    if not SCHEMA_NAME.fullmatch(schema) or len(schema) > 63:
        raise ValueError(
            f"its schema {schema[:80]!r} must be a name of letters, digits and _, not starting with a digit"
        )
    kept = [part for part in query if part and unquote(part.partition("=")[0]) not in PRISMA_PARAMETERS]
    parameters = _resolved(_joined(base, kept))
    _refuse_what_libpq_refuses(_joined(base, kept), parameters)
    hosts = _hosts(parameters)
    if len(hosts) > 1 and not _chooses_session(named, parameters):
        kept.append(f"{TARGET}={several_hosts}")
    pooled = named.get("pgbouncer", "").lower() == "true"
    prepares = named.get("statement_cache_size") != "0"
    return DatabaseUrl(_joined(base, kept), schema, pooled, parameters, "schema" in named, hosts, prepares)


def parse_read_url(text: str) -> DatabaseUrl:
    """Of several hosts the first standby that answers is read from."""
    return parse_database_url(text, several_hosts=PREFER_STANDBY)


def _joined(base: str, query: list[str]) -> str:
    return f"{base}?{'&'.join(query)}" if query else base


def _chooses_session(named: Mapping[str, str], parameters: Mapping[str, str]) -> bool:
    """libpq completes `any` where nobody chooses; a service file that chooses `any` cannot be told from that."""
    return TARGET in named or "PGTARGETSESSIONATTRS" in os.environ or parameters.get(TARGET, "any") != "any"


def _hosts(parameters: Mapping[str, str]) -> tuple[Host, ...]:
    """As libpq pairs the three lists, whose lengths it has checked: one port serves all hosts."""
    names, addresses, ports = (parameters.get(name, "").split(",") for name in ("host", "hostaddr", "port"))
    places = list(zip_longest(names, addresses, fillvalue=""))
    each_port = ports * len(places) if len(ports) == 1 else ports
    return tuple(Host(*place, port.strip() or DEFAULT_PORT) for place, port in zip(places, each_port, strict=True))


def _split_query(text: str) -> tuple[str, list[str]]:
    """As libpq does: credentials end at the first @ that comes before any /, and may hold ? and #.

    The text itself is cut: taken apart and put together again, `postgresql:///database` would change.
    """
    start = text.index("://") + 3
    credentials = re.compile(r"[^@/]*@").match(text, start)
    mark = text.find("?", credentials.end() if credentials else start)
    return (text, []) if mark < 0 else (text[:mark], text[mark + 1 :].split("&"))


def _resolved(conninfo: str) -> dict[str, str]:
    """libpq completes the parameters before it checks them: an invalid sslmode makes it stop there, unconnected."""
    try:
        stopped = pq.PGconn.connect_start(make_conninfo(conninfo, sslmode=NO_SSLMODE).encode())
    except psycopg.ProgrammingError as error:
        raise ValueError(_what_libpq_says(error)) from None
    try:
        found = {each.keyword.decode(): each.val.decode() for each in stopped.info if each.val}
        if not found:
            raise ValueError(f"PostgreSQL's client library refuses it: {stopped.get_error_message()}")
    finally:
        stopped.finish()
    return {name: value for name, value in found.items() if name not in ("password", "sslpassword", "sslmode")}


def _refuse_what_libpq_refuses(conninfo: str, parameters: Mapping[str, str]) -> None:
    """Checks before connecting: such a value would be retried without end. Ports are not quoted: with an unescaped /
    in the password a part of it is taken for the port."""
    for name in WHOLE_NUMBERS:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", parameters.get(name, "0")):
            raise ValueError(f"its {name} must be a whole number")
    for port in parameters.get("port", "").split(","):
        if port and not (re.fullmatch(r"\s*[0-9]{1,5}\s*", port) and 1 <= int(port) <= 65535):
            raise ValueError("its port must be a number from 1 to 65535")
    for address in filter(None, parameters.get("hostaddr", "").split(",")):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise ValueError("its hostaddr must be an IP address") from None
    _try_without_network(conninfo, parameters)


def _try_without_network(conninfo: str, parameters: Mapping[str, str]) -> None:
    """libpq checks the rest on its way to a socket that does not exist. Given a password, it reads no password file."""
    hosts = (parameters.get("hostaddr") or parameters.get("host") or "").count(",") + 1
    nowhere = make_conninfo(conninfo, host=",".join([NOWHERE] * hosts), hostaddr="", password="none")
    tried = pq.PGconn.connect_start(nowhere.encode())
    try:
        message = tried.get_error_message()
    finally:
        tried.finish()
    if NOWHERE not in message:
        raise ValueError(f"PostgreSQL's client library refuses it: {message}")


def _what_libpq_says(error: psycopg.Error) -> str:
    """Shows only the name of a parameter: other messages of libpq quote the URL, which may contain a password."""
    named = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
    return f"it has a parameter that PostgreSQL does not know: {named[1]}" if named else SHAPE
