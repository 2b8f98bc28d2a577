"""Several statements in one round trip through a transaction pooler, with plans that all clients of the pool share.

A client does not know which server connection its next transaction gets, so it cannot keep prepared statements of its
own. But what SQL's PREPARE has prepared stays on the server connection, whichever client did it: the name holds a hash
of the text, and every client executes the statement by that name. Where it is missing, EXECUTE fails before anything
is done. A failed transaction keeps its server connection until it is rolled back, so the client prepares it there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from convertq import sql
from convertq.queue.database.answers import ANSWERED, Answers
from convertq.queue.database.pipeline import BEGIN, COMMIT, Statement, as_text, numbered
from psycopg.errors import error_from_result
from psycopg.pq import Escaping, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import DictRow

if TYPE_CHECKING:
    from convertq.queue.database.connection import BoundedConnection

MISSING = psycopg.errors.InvalidSqlStatementName
EXISTS = psycopg.errors.DuplicatePreparedStatement
#: A migration has changed the type of a column: PostgreSQL does not execute what was prepared before it.
CHANGED_COLUMNS = psycopg.errors.FeatureNotSupported
#: After so many statements in a row that a server connection has lost although this client had prepared them on it,
#: the pooler is one that resets its server connections, where preparing costs more than it saves.
LOSSES_OF_A_RESETTING_POOLER = 3
MOST_TRIES = 5  # of one run, before its statements are sent unprepared


class SharedStatement(NamedTuple):
    name: bytes
    text: bytes
    parameters: list[str]  # in the order of their numbers


class Command(NamedTuple):
    """A part of a message. It is answered by one result."""

    text: bytes
    executes: str = ""  # the name of a file in sql/queries
    prepares: bytes = b""


ROLLBACK, END = Command(b"ROLLBACK"), Command(b"COMMIT")
SERVER_PROCESS = Command(sql.query("get_server_process", ""))


class PooledPipeline(Answers):
    """Runs statements on a connection through a transaction pooler. A run is a transaction, or begins or ends one."""

    def __init__(
        self,
        connection: BoundedConnection,
        schema: str,
        begin: Sequence[bytes],
        run_plain: Callable[..., list[DictRow]],
    ) -> None:
        super().__init__(connection)
        self._schema, self._begin, self._run_plain = schema, [Command(each) for each in begin], run_plain
        self._escaping = Escaping(connection.pgconn)
        self._statements: dict[str, SharedStatement] = {}
        self._prepared_on: set[tuple[bytes, bytes | None]] = set()  # what this client has prepared on which process
        self._losses = 0

    @property
    def shares_plans(self) -> bool:
        return self._connection.prepares_behind_pooler and self._losses < LOSSES_OF_A_RESETTING_POOLER

    def run(self, *statements: Statement) -> list[list[DictRow]]:
        """The rows of each. Raises psycopg.Error of the statement that failed; no transaction is open after that.

        In a transaction that is open already, statements are not executed by name: a missing one would abort it.
        """
        is_idle = self._connection.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            return self._run_shared(statements) if is_idle and self.shares_plans else self._run_unprepared(statements)
        except Exception:
            if not self._connection.closed:
                self._connection.rollback()
            raise

    def _run_unprepared(self, statements: Sequence[Statement]) -> list[list[DictRow]]:
        return [self._run_one_unprepared(statement) for statement in statements]

    def _run_one_unprepared(self, statement: Statement) -> list[DictRow]:
        if statement in (BEGIN, COMMIT):
            commands = self._begin if statement == BEGIN else [END]
            results = self._send(commands)
            if results[-1].status not in ANSWERED:
                raise _error(commands, results)
            return []
        name, parameters = statement
        return self._run_plain(name, **parameters)

    def _run_shared(self, statements: Sequence[Statement]) -> list[list[DictRow]]:
        """Nothing of a try that failed has taken effect, because a message is a transaction or the first part of it."""
        executions, preparing = self._executions(statements), list[Command]()
        for _ in range(MOST_TRIES):
            in_failed = self._connection.pgconn.transaction_status == TransactionStatus.INERROR
            commands = [*([ROLLBACK] if in_failed else []), *self._begin, *preparing, *executions]
            results = self._send(commands)
            if results[-1].status in ANSWERED:
                self._count_losses(commands, results)
                return self._read(statements, commands, results)
            preparing = self._remedy(commands[len(results) - 1], _error(commands, results))
        self._connection.rollback()
        return self._run_unprepared(statements)

    def _executions(self, statements: Sequence[Statement]) -> list[Command]:
        executions = [self._execution(*statement) for statement in statements if statement not in (BEGIN, COMMIT)]
        stays_open = statements[0] == BEGIN and statements[-1] != COMMIT
        return executions if stays_open else [*executions, END]

    def _execution(self, name: str, given: dict[str, object]) -> Command:
        statement = self._statements.get(name)
        if statement is None:
            statement = self._statements[name] = shared_statement(name, self._schema)
        values = b", ".join([self._literal(given[key]) for key in statement.parameters])
        return Command(b"EXECUTE " + statement.name + (b"(" + values + b")" if values else b""), executes=name)

    def _literal(self, value: object) -> bytes:
        text = as_text(value)
        if text is None:
            return b"NULL"
        if b"\0" in text:
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return self._escaping.escape_literal(text)

    def _send(self, commands: Sequence[Command]) -> list[PGresult]:
        """The results of all of them, or of those up to the first that failed."""
        self._connection.pgconn.send_query(b"; ".join([command.text for command in commands]))
        results: list[PGresult] = []
        for result in self._results():
            if result is None:
                break
            results.append(result)
        return results

    def _remedy(self, failed: Command, error: psycopg.Error) -> list[Command]:
        """What to send before the executions, so that they do not fail this way again."""
        if failed.prepares and isinstance(error, EXISTS):
            return []
        if not failed.executes or not isinstance(error, MISSING | CHANGED_COLUMNS):
            raise error
        statement = self._statements[failed.executes]
        first = SERVER_PROCESS if isinstance(error, MISSING) else Command(b"DEALLOCATE " + statement.name)
        prepare = b"PREPARE " + statement.name + b" AS " + statement.text + b"\n"  # a comment ends with its line
        return [first, Command(prepare, prepares=statement.name)]

    def _count_losses(self, commands: Sequence[Command], results: Sequence[PGresult]) -> None:
        if SERVER_PROCESS not in commands:
            self._losses = 0
            return
        place = commands.index(SERVER_PROCESS)
        prepared = commands[place + 1].prepares, results[place].get_value(0, 0)
        self._losses = self._losses + 1 if prepared in self._prepared_on else 0
        self._prepared_on.add(prepared)

    def _read(
        self, statements: Sequence[Statement], commands: Sequence[Command], results: Sequence[PGresult]
    ) -> list[list[DictRow]]:
        rows = iter([
            self._rows((command.executes, *map(result.ftype, range(result.nfields))), result)
            for command, result in zip(commands, results, strict=True) if command.executes
        ])  # fmt: skip
        return [[] if statement in (BEGIN, COMMIT) else next(rows) for statement in statements]


def _error(commands: Sequence[Command], results: Sequence[PGresult]) -> psycopg.Error:
    """Of the last result. A standby refuses to begin a transaction that may write, in words of its own."""
    failed, error = commands[len(results) - 1], error_from_result(results[-1])
    if failed.text.startswith(b"BEGIN") and isinstance(error, psycopg.errors.FeatureNotSupported):
        return psycopg.errors.ReadOnlySqlTransaction(str(error))
    return error


def shared_statement(name: str, schema: str) -> SharedStatement:
    text, parameters = numbered(name, schema)
    return SharedStatement(f"convertq_{name[:30]}_{hashlib.sha256(text).hexdigest()[:16]}".encode(), text, parameters)
