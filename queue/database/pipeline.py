"""Several statements in one round trip to the server: one packet out, one packet back.

psycopg's pipeline sends a packet for each statement, and the server wakes up for each.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
from convertq import sql
from convertq.queue.database.answers import ANSWERED, Answers
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import DictRow

if TYPE_CHECKING:
    from convertq.queue.database.connection import BoundedConnection

Statement = tuple[str, dict[str, Any]]  # the name of a file in sql/queries, and its parameters
BEGIN: Statement = ("BEGIN", {})
COMMIT: Statement = ("COMMIT", {})
#: psycopg deallocates every prepared statement when it rolls a transaction back; and PostgreSQL does not execute one
#: that was prepared before a migration has changed the type of one of its columns.
MUST_BE_PREPARED_AGAIN = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported)


@dataclass(frozen=True)
class Prepared:
    name: bytes
    parameters: list[str]  # in the order of their numbers


class Pipeline(Answers):
    """Runs statements on one connection, whose answer timeout bounds each run, and prepares each before its first."""

    def __init__(self, connection: BoundedConnection, schema: str) -> None:
        super().__init__(connection)
        self._schema = schema
        self._forget()

    def _forget(self) -> None:
        self._prefix = f"convertq_{secrets.token_hex(4)}"  # unlike any other name prepared on this connection
        self._prepared: dict[str, Prepared] = {}

    def run(self, *statements: Statement) -> list[list[DictRow]]:
        """The rows of each. Raises psycopg.Error of the statement that failed; no transaction is open after that."""
        was_idle = self._connection.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            return self._run(*statements)
        except MUST_BE_PREPARED_AGAIN:
            # Nothing was executed; but statements that belong to a transaction which was open before would mean
            # something else without it.
            self._forget()
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
            pgconn.send_query_prepared(prepared.name, [as_text(given[key]) for key in prepared.parameters])
            wanted.append(name)
        pgconn.pipeline_sync()
        results = self._answers()
        pgconn.exit_pipeline_mode()
        if results[-1].status not in ANSWERED:
            self._raise(results, wanted)
        return [self._rows(name, result) for result, name in zip(results, wanted, strict=True) if name]

    def _prepare(self, pgconn: PGconn, name: str) -> None:
        text, parameters = numbered(name, self._schema)
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

    def _answers(self) -> list[PGresult]:
        results: list[PGresult] = []
        for result in self._results():
            if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                break
            if result is not None:
                results.append(result)
        return results


def numbered(name: str, schema: str) -> tuple[bytes, list[str]]:
    """libpq's $1 for psycopg's %(name)s, and which name is which number."""
    if (name, {}) in (BEGIN, COMMIT):
        return name.encode(), []
    text, names = sql.query(name, schema).decode(), dict[str, int]()
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.setdefault(match[1], len(names) + 1)}", text)
    return numbered.replace("%%", "%").encode(), list(names)


def as_text(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()
