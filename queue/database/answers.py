"""Waits for the results of a connection and reads their rows, without psycopg's generators: for a worker they are a
large part of its cost, so this calls libpq itself, through psycopg.pq."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from convertq.queue.database.unreadable_row import UnreadableRow
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import DictRow

if TYPE_CHECKING:
    from convertq.queue.database.connection import BoundedConnection

#: The statements of a worker take a few milliseconds of CPU: after this time one waits for something else.
SLOW_ANSWER_SECONDS = 0.01
ANSWERED = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


class Answers:
    """The results of one connection, whose answer timeout bounds each round trip."""

    def __init__(self, connection: BoundedConnection) -> None:
        self._connection = connection
        self._readers: dict[Hashable, RowReader] = {}  # by statement
        self.when_slow: Callable[[], None] | None = None  # called when an answer is slow
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, select.POLLIN)

    def _results(self) -> Iterator[PGresult | None]:
        """Sends what is buffered, and yields each result as it arrives; None is the end of one statement's results. The
        caller stops after the last one."""
        pgconn, deadline = self._connection.pgconn, time.monotonic() + self._connection.answer_timeout_seconds
        while pgconn.flush():
            self._wait(deadline, sends=True)
        while True:
            while pgconn.is_busy():
                self._wait(deadline)
            result = pgconn.get_result()
            if result is None and pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError(pgconn.error_message.decode(errors="replace").strip())
            yield result

    def _wait(self, deadline: float, *, sends: bool = False) -> None:
        pgconn, poll = self._connection.pgconn, self._poll
        if sends:
            poll = select.poll()
            poll.register(pgconn.socket, select.POLLIN | select.POLLOUT)
        if self.when_slow is not None and not poll.poll(1000 * SLOW_ANSWER_SECONDS):
            self.when_slow()
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            self._connection.close_unanswered()
        pgconn.consume_input()

    def _rows(self, statement: Hashable, result: PGresult) -> list[DictRow]:
        """The columns of the same statement have the same names and types each time."""
        if not result.ntuples:
            return []
        reader = self._readers.get(statement)
        if reader is None:
            reader = self._readers[statement] = RowReader(self._connection, result)
        try:
            return reader.read(result)
        except Exception as error:
            raise UnreadableRow(error) from error


class RowReader:
    """Reads the results of one statement."""

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
