"""Several statements in one trip to the server: one packet out, one packet back.

psycopg's pipeline sends a packet for each statement, and the server wakes up for each. In the middle of a queue that is
a good part of all that a worker does, so this talks to libpq itself, through psycopg.pq.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator
from typing import Any

import psycopg
from convertq import sql
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import DictRow
from psycopg.waiting import Ready, Wait

Statement = tuple[str, dict[str, Any]]  # the name of a file in sql/queries, and its parameters
BEGIN: Statement = ("BEGIN", {})
COMMIT: Statement = ("COMMIT", {})


class Trips:
    """Of one connection, whose patience bounds each; every statement is prepared the first time it goes along."""

    def __init__(self, connection: psycopg.Connection[DictRow], schema: str) -> None:
        self._connection, self._schema = connection, schema
        self._prefix = f"convertq_{secrets.token_hex(4)}"  # whoever else prepares on this connection has other names
        self._parameters: dict[str, list[str]] = {}

    def make(self, *statements: Statement) -> list[list[DictRow]]:
        """The rows of each. Raises psycopg.Error: after that the connection is of no use."""
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        wanted = [sent for statement in statements for sent in self._send(pgconn, statement)]
        pgconn.pipeline_sync()
        results = self._connection.wait(_answers(pgconn))
        pgconn.exit_pipeline_mode()
        return [self._rows(result) for result, wants_rows in zip(results, wanted, strict=True) if wants_rows]

    def _send(self, pgconn: PGconn, statement: Statement) -> list[bool]:
        """For each result that will come back, whether it is the statement's own."""
        name, given = statement
        prepared_as, is_new = f"{self._prefix}_{name}".encode(), name not in self._parameters
        if is_new:
            text, self._parameters[name] = _numbered(name, self._schema)
            pgconn.send_prepare(prepared_as, text)
        pgconn.send_query_prepared(prepared_as, [_as_text(given[key]) for key in self._parameters[name]])
        return [False, True] if is_new else [True]

    def _rows(self, result: PGresult) -> list[DictRow]:
        transformer = Transformer(self._connection)
        transformer.set_pgresult(result)
        names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        return transformer.load_rows(0, result.ntuples, lambda values: dict(zip(names, values, strict=True)))


def _numbered(name: str, schema: str) -> tuple[bytes, list[str]]:
    """libpq's $1 for psycopg's %(name)s, and which name is which number."""
    if (name, {}) in (BEGIN, COMMIT):
        return name.encode(), []
    text, names = sql.query(name, schema).decode(), dict[str, int]()
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.setdefault(match[1], len(names) + 1)}", text)
    return numbered.replace("%%", "%").encode(), list(names)


def _as_text(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()


def _answers(pgconn: PGconn) -> Generator[Wait, Ready | int, list[PGresult]]:
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    results: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:  # the end of one statement's results
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            return results
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.DatabaseError(result.error_message.decode(errors="replace").strip())
        results.append(result)
