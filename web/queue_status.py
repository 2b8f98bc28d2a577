"""What every open page requests every few seconds: the breaker, and how many jobs are queued.

Each process reads it at most once per second, for any number of pages. The count is exact: aggregated counters and all
later events. Supervisors aggregate. Where none runs, the later events would accumulate, and so this process aggregates
when there are many.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from convertq.queue.config import Config
from convertq.queue.counters import Counters, aggregate_counters, has_uncounted_events
from convertq.queue.database.database import Database
from convertq.queue.queue_state import get_queue_state
from convertq.queue.status import JobStatus
from convertq.web.http_error import DatabaseDown
from convertq.web.pool import Connections

Reading = Callable[[], AbstractContextManager[Database]]

MAX_AGE_SECONDS = 1.0
MANY_EVENTS = 10_000
MAX_AGGREGATE_SECONDS = 2.0


class QueueStatus:
    def __init__(
        self, connections: Connections, config: Config, reading: Reading, reads_replica: Callable[[], bool]
    ) -> None:
        self._connections, self._config = connections, config
        self._reading, self._reads_replica = reading, reads_replica
        self._lock = threading.Lock()
        #: By whether it was read from the replica, with the time when it is read again.
        self._answers: dict[bool, tuple[float, dict[str, Any] | DatabaseDown]] = {}
        self._aggregating = False

    def get(self) -> dict[str, Any]:
        """At most a second old; DatabaseDown is kept as long, so that waiting requests do not try one by one."""
        place = self._reads_replica()
        with self._lock:
            read_again_at, answer = self._answers.get(place, (0.0, {}))
            if time.monotonic() >= read_again_at:
                answer = self._read_or_error()
                self._answers[place] = time.monotonic() + MAX_AGE_SECONDS, answer
        if isinstance(answer, DatabaseDown):
            raise DatabaseDown(answer.reason, answer.public_reason)
        return answer

    def _read_or_error(self) -> dict[str, Any] | DatabaseDown:
        try:
            return self._read()
        except DatabaseDown as down:
            return down

    def _read(self) -> dict[str, Any]:
        with self._reading() as database:
            state = get_queue_state(database, self._config)
            queued = Counters(database)("jobs", JobStatus.QUEUED)
            is_behind = has_uncounted_events(database, MANY_EVENTS)
        if is_behind and not self._aggregating:
            self._aggregating = True
            threading.Thread(target=self._aggregate, daemon=True).start()
        return {"breaker": state["breaker"], "gateways": state["gateways"], "queue_depth": queued}

    def _aggregate(self) -> None:
        """Runs in the background, in short statements. It does not wait for a supervisor that aggregates too."""
        try:
            with self._connections.session() as database:
                aggregate_counters(database, MAX_AGGREGATE_SECONDS)
            self._aggregating = False
        except DatabaseDown:
            self._aggregating = False
        except psycopg.errors.InsufficientPrivilege:
            pass  # An older roles.sql did not grant it to the web; it is not tried again.
