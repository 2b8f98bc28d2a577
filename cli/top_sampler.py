"""The database's side of `convertq top`: a thread of its own, so that keys are heard while the database is silent."""

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
from convertq.cli.context import APPLICATION_NAME, the_files
from convertq.cli.retry import why_not
from convertq.cli.top_snapshot import Snapshot, Trouble, take_snapshot
from convertq.worker.config import Config
from convertq.worker.db import Database, is_full
from convertq.worker.errors import one_line
from convertq.worker.link import TROUBLE
from convertq.worker.manual_retry import retry_job

PATIENCE = 4.0  # s without an answer until the screen says so
TRY_AGAIN_EVERY = 1.0  # s


@dataclass(frozen=True)
class Answer:
    """One line about what a key has done."""

    line: str


News = Snapshot | Trouble | Answer | Exception  # the last is a slip of ours: the thread has ended
Order = Callable[[], None]


class Sampler(threading.Thread):
    """Takes a snapshot every `interval` seconds and after each order; a byte on `bell` says that there are news."""

    def __init__(self, database: Database, config: Config, interval: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self.shows = "all"
        self.bell, self._ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._news: SimpleQueue[News] = SimpleQueue()
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._database: Database | None = database
        self._config, self._interval = config, interval

    # -- called by the loop that draws --

    def news(self) -> list[News]:
        with contextlib.suppress(BlockingIOError):
            os.read(self.bell, 4096)
        found: list[News] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._news.get_nowait())
        return found

    def show(self, what: str) -> None:
        """Which errors to list from now on."""
        self.shows = what
        self._orders.put(look)

    def retry(self, job_id: UUID) -> None:
        self._orders.put(lambda: self._retry(job_id))

    def stop(self) -> None:
        """Does not wait for a database that is silent: the thread ends with the process."""
        self._orders.put(None)
        self.join(0.5)

    # -- the thread --

    def run(self) -> None:
        try:
            self._obey_orders()
        except Exception as error:  # noqa: BLE001 - raised again by the loop that draws, which gives the terminal back
            self._tell(error)

    def _obey_orders(self) -> None:
        order: Order | None = look
        while order is not None:
            began = time.monotonic()
            pause = self._interval if self._carry_out(order) else max(self._interval, TRY_AGAIN_EVERY)
            order = self._next_order(began + pause)
        if self._database:
            self._database.close()

    def _next_order(self, until: float) -> Order | None:
        try:
            return self._orders.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return look

    def _carry_out(self, order: Order) -> bool:
        try:
            order()
            self._tell(take_snapshot(self._open(), self._config, self.shows))
        except TROUBLE as error:
            self._drop()
            self._tell(trouble_with(error))
            return False
        return True

    def _retry(self, job_id: UUID) -> None:
        try:
            self._tell(Answer(answer_to_retry(self._open(), job_id)))
        except TROUBLE:
            self._tell(Answer(f"{job_id}: no answer from the database, try again when it is back"))
            raise

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database.open(self._config.database, APPLICATION_NAME)
        self._database.connection.patience = PATIENCE
        return self._database

    def _drop(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _tell(self, news: News) -> None:
        self._news.put(news)
        with contextlib.suppress(BlockingIOError):
            os.write(self._ring, b"!")


def look() -> None:
    """The order to do nothing but to take a snapshot."""


def answer_to_retry(database: Database, job_id: UUID) -> str:
    """As `convertq retry` would say it."""
    if retry_job(database, the_files(), job_id):
        return f"{job_id} queued"
    return f"{job_id}: {why_not(database, job_id)[1]}"


def trouble_with(error: Exception) -> Trouble:
    if isinstance(error, psycopg.OperationalError):
        what = "the database has no connection left" if is_full(error) else "database unreachable"
        return Trouble(f"{what}, trying again", one_line(str(error)))
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return Trouble("the database cannot be read, trying again", one_line(said or str(error)))
