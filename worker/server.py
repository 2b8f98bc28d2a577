"""The supervisor's row in `servers`: registration, heartbeat, and what it does in the database for its workers.

Every call is bounded in time and survives a database that is down: the supervisor's loop never depends on it.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable

from convertq.worker.board import Board
from convertq.worker.config import Config
from convertq.worker.counters import BATCH, fold_counters
from convertq.worker.db import Database, SchemaError, application_name
from convertq.worker.errors import one_line
from convertq.worker.files import Files, discard
from convertq.worker.job_queue import JobQueue
from convertq.worker.link import RETRY_AT_MOST_EVERY, TROUBLE, Link
from convertq.worker.log import Log
from convertq.worker.returned import say_returned
from convertq.worker.version import VERSION
from convertq.worker.wake import Wake


class Server:
    def __init__(self, config: Config, board: Board, wake: Wake, log: Log, is_alive: Callable[[], None]) -> None:
        self._config, self._board, self._wake, self._log = config, board, wake, log
        self._is_alive = is_alive  # told between steps: each is bounded in time, all of them together may take long
        self._files = Files(config.uploads_dir, config.results_dir)
        self._link = Link(config.database, log, lambda: application_name(f"{self._board.server_id}/supervisor"))
        self._try_at = 0.0
        self._pause = 0.1
        self._beat_at = 0.0
        self.is_registered = False
        self.state = "waiting for the database"  # a few words for the operator, as of the last heartbeat
        self._name_anew()

    def _name_anew(self) -> None:
        """Never a name that was used before: a job leased by a server that is gone must not look alive."""
        self.is_registered = False
        host = socket.gethostname()[:100]
        self._board.server_id = self._log.server = f"{host}:{os.getpid()}:{secrets.token_hex(4)}"

    # -- kept up by the supervisor's loop --

    def keep_up(self) -> None:
        """Connects, registers and beats when it is time to."""
        now = time.monotonic()
        if now < self._try_at:
            return
        try:
            database = self._open()
            if not self.is_registered:
                self._register(database)
            if now >= self._beat_at:
                self._beat(database)
            self._link.works()
            self._pause = 0.1
        except TROUBLE as error:
            self._trouble(error)

    def _trouble(self, error: BaseException) -> None:
        self._link.drop(error)
        self.state = one_line(str(error)) if isinstance(error, SchemaError) else "waiting for the database"
        self._pause = min(self._pause * 2, RETRY_AT_MOST_EVERY)
        self._try_at = time.monotonic() + self._pause
        self._beat_at = 0.0  # the next connection has to prove itself

    def _open(self) -> Database:
        was_open = self._link.database is not None
        database = self._link.open()
        if not was_open:
            database.connection.add_notify_handler(lambda notify: self._wake.give())
            database.listen()
            self._is_alive()
            self._wake.give()  # for what was announced while nobody listened
        return database

    def _register(self, database: Database) -> None:
        database.run(
            "register_server", server=self._board.server_id, hostname=socket.gethostname(), pid=os.getpid(),
            version=VERSION, environment=self._config.worker_environment, concurrency=self._config.worker_concurrency,
        )  # fmt: skip
        self.is_registered = True
        self._is_alive()
        self._recover(database)
        self._beat_at = 0.0  # the first beat comes at once, and with it the breaker's state

    def _recover(self, database: Database) -> None:
        """What a supervisor does first: take back what dead ones left, rows and temp files."""
        for row in JobQueue(database, self._config).reclaim_jobs():
            say_returned(self._log, "reclaim", row, reason=row["reason"], holder=row["holder"])
        self._is_alive()
        parts = list(self._files.parts())  # listed first: whatever is listed and alive is in the table by now
        running = {row["id"]: row for row in database.run("find_attempts", ids=[part[1] for part in parts])}
        for path, job_id, attempt, holder in parts:
            now = running.get(job_id)
            if not now or now["attempt"] != attempt or not self._files.is_of(holder, now["holder"]):
                discard(path)

    def _beat(self, database: Database) -> None:
        self._beat_at = time.monotonic() + self._config.worker_heartbeat_sec
        row = database.one("heartbeat_server", server=self._board.server_id)
        self._is_alive()
        if row is None:
            # declared dead while it was paused: its jobs are others' now, and so is its name
            self._name_anew()
            self._register(database)
        else:
            self.state = f"breaker {row['breaker']}".replace("_", "-")
        if fold_counters(database) >= BATCH:  # more than fits between two beats
            self._beat_at = min(self._beat_at, time.monotonic() + 1)

    # -- waking up --

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Readable when a job was announced."""
        return (self._link.database.connection.fileno(),) if self._link.database else ()

    def hear(self) -> None:
        """Takes what has arrived, without waiting for more."""
        database = self._link.database
        if database is None:
            return
        try:
            database.connection.pgconn.consume_input()
            while database.connection.pgconn.notifies():
                self._wake.give()
        except TROUBLE as error:
            self._trouble(error)

    # -- for its workers --

    def give_back(self, slot: int, *, counted: bool, reason: str) -> bool:
        """Requeues what a dead worker held. If the database is down, its successor in the slot does it.

        One that did not answer a moment ago is not asked for each of many workers that died together.
        """
        self._is_alive()
        holder = f"{self._board.server_id}/{slot}"
        if time.monotonic() < self._try_at:
            return False
        try:
            rows = JobQueue(self._open(), self._config).requeue_worker_jobs(holder, counted=counted, reason=reason)
        except TROUBLE as error:
            self._trouble(error)
            return False
        for row in rows:
            discard(self._files.part(row["id"], row["attempt"], holder))
            say_returned(self._log, "requeue", row, reason=reason, worker=holder)
        return True

    def drain(self) -> None:
        self._try("drain_server")

    def stop(self) -> None:
        self._try("stop_server")
        self._link.close()

    def _try(self, statement: str) -> None:
        if not self.is_registered:
            return
        try:
            self._open().run(statement, server=self._board.server_id)
        except TROUBLE as error:
            self._trouble(error)

    def leave_behind(self) -> None:
        """In a forked child: the parent's session must not be ended from here, nor its socket be held."""
        if self._link.database is not None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, self._link.database.connection.fileno())
            os.close(null)
