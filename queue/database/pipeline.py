"""Several statements in one round trip to the server: one packet out, one packet back.

psycopg's pipeline sends a packet for each statement, and the server wakes up for each. For a worker that is a
large part of its cost, so this calls libpq itself, through psycopg.pq.
"""

from __future__ import annotations

import re
import secrets
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
from convertq import sql
from convertq.queue.database.unreadable_row import UnreadableRow
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import DictRow

if TYPE_CHECKING:
    from convertq.queue.database.connection import BoundedConnection

Statement = tuple[str, dict[str, Any]]  # the name of a file in sql/queries, and its parameters
BEGIN: Statement = ("BEGIN", {})
COMMIT: Statement = ("COMMIT", {})
#: The statements of a worker take a few milliseconds of CPU: after this time one waits for something else.
SLOW_ANSWER_SECONDS = 0.01


ANSWERED = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


@dataclass(frozen=True)
class Prepared:
    name: bytes
    parameters: list[str]  # in the order of their numbers


class Pipeline:
    """Runs statements on one connection, whose answer timeout bounds each run, and prepares each before its first."""

    def __init__(self, connection: BoundedConnection, schema: str) -> None:
        self._connection, self._schema = connection, schema
        self._prefix = f"convertq_{secrets.token_hex(4)}"  # unlike any other name prepared on this connection
        self._prepared: dict[str, Prepared] = {}
        self._readers: dict[str, RowReader] = {}  # by the name of the statement
        self.when_slow: Callable[[], None] | None = None  # called when an answer is slow
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)

    def run(self, *statements: Statement) -> list[list[DictRow]]:
        """The rows of each. Raises psycopg.Error of the statement that failed; no transaction is open after that."""
        was_idle = self._connection.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            return self._run(*statements)
        except psycopg.errors.InvalidSqlStatementName:
            # psycopg deallocates every prepared statement when it rolls a transaction back. Nothing was executed; but
            # statements that belong to a transaction which was open before would mean something else without it.
            self._prepared.clear()
            if not was_idle:
                raise
        return self._run(*statements)

    def _run(self, *statements: Statement) -> list[list[DictRow]]:
        pgconn = self._connection.pgconn
        pgconn.enter_pipeline_mode()
        wanted: list[str] = []  # for each result that will come back, the statement's name if it is its own
        for name, given in statements:
            if name not in self._prepared:
                self._prepare(pgconn, name)
                wanted.append("")
            prepared = self._prepared[name]
            pgconn.send_query_prepared(prepared.name, [_as_text(given[key]) for key in prepared.parameters])
            wanted.append(name)
        pgconn.pipeline_sync()
        results = self._answers(pgconn)
        pgconn.exit_pipeline_mode()
        if results[-1].status not in ANSWERED:
            self._raise(results, wanted)
        return [self._rows(name, result) for result, name in zip(results, wanted, strict=True) if name]

    def _prepare(self, pgconn: PGconn, name: str) -> None:
        text, parameters = _numbered(name, self._schema)
        prepared = self._prepared[name] = Prepared(f"{self._prefix}_{name}".encode(), parameters)
        pgconn.send_prepare(prepared.name, text)
        self._readers.pop(name, None)  # a migration may have changed its columns meanwhile

    def _raise(self, results: list[PGresult], wanted: list[str]) -> NoReturn:
        """The error of the first statement that failed; the server has skipped those after it."""
        for result, name, following in zip(results, wanted, wanted[1:], strict=False):
            if not name and result.status not in ANSWERED:  # it was not prepared
                del self._prepared[following]
        self._connection.rollback()
        raise error_from_result(next(result for result in results if result.status not in ANSWERED))

    def _answers(self, pgconn: PGconn) -> list[PGresult]:
        """Waits without psycopg, which would run through two generators for each piece that arrives."""
        deadline = time.monotonic() + self._connection.answer_timeout_seconds
        while pgconn.flush():
            self._wait(pgconn, deadline, sends=True)
        results: list[PGresult] = []
        while True:
            while pgconn.is_busy():
                self._wait(pgconn, deadline)
            result = pgconn.get_result()
            if result is None:  # the end of one statement's results
                if pgconn.status == ConnStatus.BAD:
                    raise psycopg.OperationalError(pgconn.error_message.decode(errors="replace").strip())
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                return results
            results.append(result)

    def _wait(self, pgconn: PGconn, deadline: float, *, sends: bool = False) -> None:
        poll = self._poll
        if sends:
            poll = select.poll()
            poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
        if self.when_slow is not None and not poll.poll(1000 * SLOW_ANSWER_SECONDS):
            self.when_slow()
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self._connection.close_unanswered()
        pgconn.consume_input()

    def _rows(self, name: str, result: PGresult) -> list[DictRow]:
        if not result.ntuples:
            return []
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers[name] = RowReader(self._connection, result)
        try:
            return reader.read(result)
        except Exception as error:
            raise UnreadableRow(error) from error


class RowReader:
    """Reads the results of one statement. Its columns have the same names and types each time."""

    def __init__(self, connection: BoundedConnection, result: PGresult) -> None:
        columns = range(result.nfields)
        self._names = [(result.fname(column) or b"").decode() for column in columns]
        self._transformer = Transformer(connection)
        self._transformer.set_pgresult(result)  # chooses how the value of each column is loaded

    def read(self, result: PGresult) -> list[DictRow]:
        self._transformer.set_pgresult(result, set_loaders=False)
        return self._transformer.load_rows(0, result.ntuples, self._row)

    def _row(self, values: Sequence[Any]) -> DictRow:
        return dict(zip(self._names, values, strict=True))


def _numbered(name: str, schema: str) -> tuple[bytes, list[str]]:
    """libpq's $1 for psycopg's %(name)s, and which name is which number."""
    if (name, {}) in (BEGIN, COMMIT):
        return name.encode(), []
    text, names = sql.query(name, schema).decode(), dict[str, int]()
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.setdefault(match[1], len(names) + 1)}", text)
    return numbered.replace("%%", "%").encode(), list(names)


def _as_text(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()
