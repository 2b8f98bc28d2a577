"""A process's link to the database: opened when needed, dropped at the first trouble, each change said once."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from convertq.worker.database_url import DatabaseUrl
from convertq.worker.db import Database, SchemaError
from convertq.worker.errors import one_line
from convertq.worker.log import Log
from tenacity import RetryCallState, RetryError, Retrying, retry_if_exception_type, wait_random_exponential

#: Any error of the database ends the connection: after it nothing is known of its state, and a new one is cheap.
TROUBLE = (psycopg.Error, SchemaError)
RETRY_AT_MOST_EVERY = 2.0  # s


class Link:
    def __init__(self, url: DatabaseUrl, log: Log, name: Callable[[], str], *, claims: bool = False) -> None:
        self._url, self._log, self._name, self._claims = url, log, name, claims
        self.database: Database | None = None
        self._said = ""

    def open(self) -> Database:
        """The open connection, or a new one at the first try. Raises one of TROUBLE."""
        if self.database is None:
            self.database = Database.open(self._url, self._name(), claims=self._claims)
        return self.database

    def works(self) -> None:
        """To be told after a statement that writes: where writing is refused, connecting proves nothing."""
        if self._said:
            self._log("db_up")
            self._said = ""

    def open_with_patience(self, pause: Callable[[float], None], give_up: Callable[[], bool]) -> Database | None:
        """Tries again until it is there or `give_up` says so; `pause` is a sleep that a signal cuts short."""
        if self.database is not None:
            return self.database

        def note(state: RetryCallState) -> None:
            if state.outcome is not None and (error := state.outcome.exception()) is not None:
                self.drop(error)

        retrying = Retrying(
            retry=retry_if_exception_type(TROUBLE),
            wait=wait_random_exponential(multiplier=0.2, max=RETRY_AT_MOST_EVERY),
            stop=lambda state: give_up(),
            sleep=pause,
            after=note,
        )
        try:
            return retrying(self.open)
        except RetryError:
            return None

    def drop(self, error: BaseException) -> None:
        if self.database is not None:
            self.database.close()
            self.database = None
        state = "without its schema" if isinstance(error, SchemaError) else "down"
        if state != self._said:
            self._said = state
            self._log("db_down", error_message=one_line(str(error)))

    def close(self) -> None:
        if self.database is not None:
            self.database.close()
            self.database = None
