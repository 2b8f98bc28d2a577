"""A process's database: opened when needed, dropped when the server is gone; each change is logged once."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from convertq.queue.database.database import Database
from convertq.queue.database.errors import DATABASE_ERRORS, SchemaError, server_is_gone
from convertq.queue.database.url import DatabaseUrl, Host
from convertq.queue.errors import one_line
from convertq.queue.log.lines import Log
from tenacity import RetryCallState, RetryError, Retrying, retry_if_exception_type, wait_random_exponential

RETRY_PAUSE_MAX_SECONDS = 2.0
END_SESSIONS_WAIT_MS = 2000


class ReconnectingDatabase:
    def __init__(self, url: DatabaseUrl, log: Log, name: Callable[[], str], *, claims: bool = False) -> None:
        self._url, self._log, self._name, self._claims = url, log, name, claims
        self.current: Database | None = None
        self._lost_host: Host | None = None
        self._logged_state = ""

    def open(self) -> Database:
        """Returns the open connection, or opens one without retries. Raises one of DATABASE_ERRORS."""
        if self.current is None:
            name = self._name()
            database = Database.open(self._url.trying_last(self._lost_host), name, claims=self._claims)
            end_sessions(database, name)  # the last commit of the previous connection may still be under way
            self.current = database
        return self.current

    def mark_working(self) -> None:
        """Logs the end of an outage. Called after a statement that writes: a read-only server accepts connections."""
        if self._logged_state:
            self._log("db_up")
            self._logged_state = ""

    def open_with_retries(self, pause: Callable[[float], None], give_up: Callable[[], bool]) -> Database | None:
        """Retries until the database is open or `give_up` returns true; `pause` is a sleep that a signal cuts short."""
        if self.current is not None:
            return self.current

        def drop_after(state: RetryCallState) -> None:
            if state.outcome is not None and (error := state.outcome.exception()) is not None:
                self.drop(error)

        retrying = Retrying(
            retry=retry_if_exception_type(DATABASE_ERRORS),
            wait=wait_random_exponential(multiplier=0.2, max=RETRY_PAUSE_MAX_SECONDS),
            stop=lambda state: give_up(),
            sleep=pause,
            after=drop_after,
        )
        try:
            return retrying(self.open)
        except RetryError:
            return None

    def drop(self, error: BaseException) -> None:
        if self.current is not None:
            self._lost_host = self.current.connection.host
            self.current.close()
            self.current = None
        state = "without its schema" if isinstance(error, SchemaError) else "down"
        if state != self._logged_state:
            self._logged_state = state
            self._log("db_down", error_message=one_line(str(error)))

    def survives(self, error: BaseException) -> bool:
        """Whether only a statement failed, so that the connection can be kept. No transaction is open on it: the
        function that opened one has rolled it back."""
        if self.current is None or not isinstance(error, psycopg.Error) or server_is_gone(error):
            return False
        return not self.current.connection.closed

    def close(self) -> None:
        if self.current is not None:
            self.current.close()
            self.current = None


def end_sessions(database: Database, name: str) -> None:
    """Ends other sessions of this name, where the role may do that. Closes the connection when the statement fails."""
    if database.connection.is_pooled:  # the name is not that of one client
        return
    try:
        database.run("end_sessions", application_name=name, wait_ms=END_SESSIONS_WAIT_MS)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.QueryCanceled):
        pass  # A worker later requeues the jobs that such a session may have claimed (requeue_worker_jobs).
    except psycopg.Error:
        database.close()
        raise
