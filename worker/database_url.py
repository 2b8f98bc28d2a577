"""DATABASE_URL as Prisma and libpq both write it: what libpq gets to see of it, and the schema that it names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

SHAPE = "must be postgresql://user:password@host:port/database"
SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Prisma's own, which libpq refuses
PRISMA_PARAMETERS = frozenset(
    {
        "connection_limit", "max_connection_lifetime", "max_idle_connection_lifetime", "pgbouncer", "pool_timeout",
        "schema", "single_use_connections", "socket_timeout", "sslaccept", "sslidentity", "statement_cache_size",
    }
)  # fmt: skip


@dataclass(frozen=True)
class DatabaseUrl:
    conninfo: str = field(repr=False)  # may hold a password
    schema: str
    pooled: bool  # the writer says that a transaction pooler is in between

    @property
    def shown(self) -> str:
        """For people: where, never the password."""
        known = conninfo_to_dict(self.conninfo)
        host, port = known.get("host") or "the local socket", known.get("port") or 5432
        return f"{host}:{port}/{known.get('dbname') or known.get('user') or ''}"


def parse_database_url(text: str) -> DatabaseUrl:
    """Raises ValueError with a message that shows no secret."""
    try:
        parts = urlsplit(text)
    except ValueError:  # its message would quote the password
        raise ValueError(SHAPE) from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError(SHAPE)
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(parameters).get("schema", "public")
    if not SCHEMA_NAME.fullmatch(schema) or len(schema) > 63:
        raise ValueError(
            f"its schema {schema[:80]!r} must be a name of letters, digits and _, not starting with a digit"
        )
    conninfo = _without_prisma(text)
    try:
        conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        raise ValueError(_what_libpq_says(error)) from None
    return DatabaseUrl(conninfo, schema, pooled=dict(parameters).get("pgbouncer", "").lower() == "true")


def _without_prisma(text: str) -> str:
    """Cut from the text itself: taken apart and put together again, `postgresql:///database` would change."""
    base, mark, query = text.partition("?")
    kept = [part for part in query.split("&") if part.partition("=")[0] not in PRISMA_PARAMETERS]
    return base + mark + "&".join(kept) if any(kept) else base


def _what_libpq_says(error: psycopg.Error) -> str:
    """Only of a parameter's name; other messages quote what stands in the URL, a password perhaps."""
    named = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
    return f"it has a parameter that PostgreSQL does not know: {named[1]}" if named else SHAPE
