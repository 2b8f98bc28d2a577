"""The errors of a database: the server cannot be used, one statement failed, or the tables do not fit."""

from __future__ import annotations

import psycopg
from convertq.queue.errors import one_line


class SchemaError(Exception):
    """The database is there, but not the tables that this version needs; the message says what to do."""


#: What a statement or a new connection can raise; `server_is_gone` tells an outage from a statement that failed.
DATABASE_ERRORS = (psycopg.Error, SchemaError)
#: Another session holds a lock, or a statement took too long: the next try may succeed.
TRANSIENT_ERRORS = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected)
#: SQLSTATE classes of a server that cannot be used at all; others are about one statement.
NOT_CONNECTED = ("08", "28", "3D", "53", "57P")
READ_ONLY = "25006"  # a standby, or a primary that has been demoted: another host may have taken over
TOO_MANY_CONNECTIONS = "53300"
#: libpq keeps no SQLSTATE of a refused connection, so its message is compared with these words.
SERVER_IS_FULL = ("sorry, too many clients already", "remaining connection slots are reserved")
OWN_LIMIT_IS_REACHED = ("too many connections for role", "too many connections for database")


def is_full(error: psycopg.Error) -> bool:
    """Whether the database is there, and has no connection left for this role."""
    words = SERVER_IS_FULL + OWN_LIMIT_IS_REACHED
    return error.sqlstate == TOO_MANY_CONNECTIONS or any(each in str(error) for each in words)


def server_is_gone(error: BaseException) -> bool:
    """Whether the connection is of no use after this error; otherwise one statement failed, and no more is wrong."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, SchemaError)
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith((*NOT_CONNECTED, READ_ONLY))


def in_plain_words(error: BaseException) -> str:
    """The server's own sentence, without its context and its statement."""
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return one_line(message or str(error))
