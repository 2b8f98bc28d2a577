"""The thread of `convertq top` that reads the database, so that keys are handled while the database does not answer."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from uuid import UUID

import psycopg
from convertq.cli.context import APPLICATION_NAME, the_store
from convertq.cli.retry import in_words
from convertq.cli.top.snapshot import DatabaseProblem, Snapshot, take_snapshot
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.errors import DATABASE_ERRORS, is_full
from convertq.queue.errors import one_line
from convertq.queue.manual_retry import explain_refused_retry, retry_job
from convertq.queue.queue_events import operator_at_terminal

ANSWER_TIMEOUT_SECONDS = 4.0  # then the screen shows the problem
RETRY_EVERY_SECONDS = 1.0


@dataclass(frozen=True)
class Answer:
    """One line about the effect of a key."""

    line: str


#: An exception is a defect of this program: the thread has ended.
Update = Snapshot | DatabaseProblem | Answer | Exception
Request = Callable[[], None]


class Sampler(threading.Thread):
    """Takes a snapshot every `interval` seconds and after each request. An update makes `updates_ready` readable."""

    def __init__(self, database: Database, config: Config, interval: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self.shows = "all"
        self.updates_ready, self._updates_pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._updates: SimpleQueue[Update] = SimpleQueue()
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._database: Database | None = database
        self._config, self._interval = config, interval

    # -- called by the loop that draws --

    def take_updates(self) -> list[Update]:
        with contextlib.suppress(BlockingIOError):
            os.read(self.updates_ready, 4096)
        found: list[Update] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._updates.get_nowait())
        return found

    def show(self, what: str) -> None:
        """Which errors to list from now on."""
        self.shows = what
        self._requests.put(refresh)

    def retry(self, job_id: UUID) -> None:
        self._requests.put(lambda: self._retry(job_id))

    def stop(self) -> None:
        """Does not wait for a database that does not answer: the thread ends with the process."""
        self._requests.put(None)
        self.join(0.5)

    # -- the thread --

    def run(self) -> None:
        try:
            self._serve_requests()
        except Exception as error:  # noqa: BLE001 - the loop that draws raises it again, after it has restored the terminal
            self._publish(error)

    def _serve_requests(self) -> None:
        request: Request | None = refresh
        while request is not None:
            began = time.monotonic()
            pause = self._interval if self._handle(request) else max(self._interval, RETRY_EVERY_SECONDS)
            request = self._next_request(began + pause)
        if self._database:
            self._database.close()

    def _next_request(self, until: float) -> Request | None:
        try:
            return self._requests.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return refresh

    def _handle(self, request: Request) -> bool:
        try:
            request()
            self._publish(take_snapshot(self._open(), self._config, self.shows))
        except DATABASE_ERRORS as error:
            self._drop()
            self._publish(describe_problem(error))
            return False
        return True

    def _retry(self, job_id: UUID) -> None:
        try:
            self._publish(Answer(answer_to_retry(self._open(), job_id)))
        except DATABASE_ERRORS:
            self._publish(Answer(f"{job_id}: no answer from the database, try again when it is back"))
            raise

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database.open(self._config.database, APPLICATION_NAME)
        self._database.connection.answer_timeout_seconds = ANSWER_TIMEOUT_SECONDS
        return self._database

    def _drop(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _publish(self, update: Update) -> None:
        self._updates.put(update)
        with contextlib.suppress(BlockingIOError):
            os.write(self._updates_pipe, b"!")


def refresh() -> None:
    """The request for a snapshot alone."""


def answer_to_retry(database: Database, job_id: UUID) -> str:
    """The same words that `convertq retry` prints."""
    if retry_job(database, the_store(), job_id, operator_at_terminal()):
        return f"{job_id} queued"
    return f"{job_id}: {in_words(explain_refused_retry(database, job_id))}"


def describe_problem(error: Exception) -> DatabaseProblem:
    if isinstance(error, psycopg.OperationalError):
        what = "the database has no connection left" if is_full(error) else "database unreachable"
        return DatabaseProblem(f"{what}, trying again", one_line(str(error)))
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return DatabaseProblem("the database cannot be read, trying again", one_line(message or str(error)))
