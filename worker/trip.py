"""Several statements in one trip to the server: one packet out, one packet back.

psycopg's pipeline sends a packet for each statement, and the server wakes up for each. In the middle of a queue that is
a good part of all that a worker does, so this talks to libpq itself, through psycopg.pq.
"""

from __future__ import annotations

import re
import secrets
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from convertq import sql
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import DictRow

if TYPE_CHECKING:
    from convertq.worker.db import BoundedConnection

Statement = tuple[str, dict[str, Any]]  # the name of a file in sql/queries, and its parameters
BEGIN: Statement = ("BEGIN", {})
COMMIT: Statement = ("COMMIT", {})


@dataclass(frozen=True)
class Prepared:
    name: bytes
    parameters: list[str]  # in the order of their numbers


class Trips:
    """Of one connection, whose patience bounds each; every statement is prepared the first time it goes along."""

    def __init__(self, connection: BoundedConnection, schema: str) -> None:
        self._connection, self._schema = connection, schema
        self._prefix = f"convertq_{secrets.token_hex(4)}"  # whoever else prepares on this connection has other names
        self._prepared: dict[str, Prepared] = {}
        self._columns: dict[str, list[str]] = {}  # of what a statement returns
        self._transformer = Transformer(connection)
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)

    def make(self, *statements: Statement) -> list[list[DictRow]]:
        """The rows of each. Raises psycopg.Error: after that the connection is of no use."""
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        wanted = [sent for statement in statements for sent in self._send(pgconn, *statement)]
        pgconn.pipeline_sync()
        results = self._answers(pgconn)
        pgconn.exit_pipeline_mode()
        return [self._rows(name, result) for result, name in zip(results, wanted, strict=True) if name]

    def _send(self, pgconn: PGconn, name: str, given: dict[str, Any]) -> Iterator[str]:
        """For each result that will come back, the statement's name if it is its own."""
        prepared = self._prepared.get(name)
        if prepared is None:
            text, parameters = _numbered(name, self._schema)
            prepared = self._prepared[name] = Prepared(f"{self._prefix}_{name}".encode(), parameters)
            pgconn.send_prepare(prepared.name, text)
            yield ""
        pgconn.send_query_prepared(prepared.name, [_as_text(given[key]) for key in prepared.parameters])
        yield name

    def _answers(self, pgconn: PGconn) -> list[PGresult]:
        """Waits by itself: psycopg's way goes through two generators for each piece that arrives."""
        deadline = time.monotonic() + self._connection.patience
        while pgconn.flush():
            self._wait(pgconn, deadline, sends=True)
        results: list[PGresult] = []
        while True:
            while pgconn.is_busy():
                self._wait(pgconn, deadline)
            result = pgconn.get_result()
            if result is None:  # the end of one statement's results
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                return results
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.DatabaseError(result.error_message.decode(errors="replace").strip())
            results.append(result)

    def _wait(self, pgconn: PGconn, deadline: float, *, sends: bool = False) -> None:
        poll = self._poll
        if sends:
            poll = select.poll()
            poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self._connection.give_up()
        pgconn.consume_input()

    def _rows(self, name: str, result: PGresult) -> list[DictRow]:
        if not result.ntuples:
            return []
        self._transformer.set_pgresult(result)
        if name not in self._columns:
            self._columns[name] = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        names = self._columns[name]
        return self._transformer.load_rows(0, result.ntuples, lambda values: dict(zip(names, values, strict=True)))


def _numbered(name: str, schema: str) -> tuple[bytes, list[str]]:
    """libpq's $1 for psycopg's %(name)s, and which name is which number."""
    if (name, {}) in (BEGIN, COMMIT):
        return name.encode(), []
    text, names = sql.query(name, schema).decode(), dict[str, int]()
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.setdefault(match[1], len(names) + 1)}", text)
    return numbered.replace("%%", "%").encode(), list(names)


def _as_text(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()
