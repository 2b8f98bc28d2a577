"""The replica that DATABASE_READ_URL names: whether it may be read from at the moment, and its connections."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.log.lines import Log
from convertq.queue.wal_position import MAX_BEHIND_SECONDS, ReplicaLag, read_position
from convertq.web.http_error import DatabaseDown
from convertq.web.pool import Connections

CHECK_SECONDS = 1.0
#: A replica that has not answered a check for this long is not read from: it may be frozen.
MAX_SILENCE_SECONDS = 3.0


class ReplicaLost(Exception):
    """A request that reads failed on the replica: it can be repeated on the primary."""


class Replica:
    """A thread of each web process compares the positions of the two servers every second."""

    def __init__(self, config: Config, primary: Connections, log: Log) -> None:
        assert config.database_read_url is not None
        self._primary, self._log = primary, log
        self._connections = Connections(config.database_read_url, log, down="", up="")
        self._lag = ReplicaLag()
        self._is_standby = False
        self._answered_at = float("-inf")
        self._was_usable: bool | None = None

    def open(self) -> None:
        self._connections.open()
        threading.Thread(target=self._check_forever, daemon=True).start()

    def close(self) -> None:
        self._connections.close()

    def may_serve(self, position: int) -> bool:
        """Whether it can be read from by somebody whose last write ended at this position."""
        return self._is_usable() and self._lag.replayed >= position

    @contextmanager
    def reading(self) -> Iterator[Database]:
        """Raises ReplicaLost."""
        try:
            with self._connections.reading() as database:
                yield database
        except DatabaseDown as error:
            self._answered_at = float("-inf")  # until the next check
            raise ReplicaLost(error.reason) from error

    def _is_usable(self) -> bool:
        now = time.monotonic()
        return self._is_standby and now - self._answered_at <= MAX_SILENCE_SECONDS and self._lag.is_close(now)

    def _check_forever(self) -> None:
        while True:
            self._log_change(self._check())
            time.sleep(CHECK_SECONDS)

    def _log_change(self, reason: str) -> None:
        """At the start it is not usable for a moment, until it has once been seen to have what the primary has."""
        usable = self._is_usable()
        if not usable and not reason and self._lag.is_late(time.monotonic()):
            reason = f"the replica is more than {MAX_BEHIND_SECONDS:g} s behind"
        if usable != self._was_usable and (usable or reason):
            self._was_usable = usable
            fields = {} if usable else {"error_message": reason}
            self._log("replica_up" if usable else "replica_down", **fields, pid=os.getpid())

    def _check(self) -> str:
        """Returns what is wrong. The primary is read first: a replica that has that position now is not behind."""
        reason = ""
        try:
            with self._primary.session() as database:
                position, _ = read_position(database)
            self._lag.add_primary_position(time.monotonic(), position or 0)
        except DatabaseDown:
            pass  # The replica may be read all the same.
        try:
            with self._connections.session() as database:
                position, self._is_standby = read_position(database)
            self._answered_at = time.monotonic()
            self._lag.set_replayed(position or 0)
            reason = "" if self._is_standby else "DATABASE_READ_URL leads to a server that is not a standby"
        except DatabaseDown as error:
            reason = error.reason
        return reason
