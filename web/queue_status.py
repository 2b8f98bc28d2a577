"""What every open page requests every few seconds: the breaker, and how many jobs are queued.

Each process reads it at most once per second, for any number of pages. The count is exact: aggregated counters and all
later events. Supervisors aggregate. Where none runs, the later events would accumulate, and so this process aggregates
when there are many.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
from convertq.queue.config import Config
from convertq.queue.counters import Counters, aggregate_counters, has_uncounted_events
from convertq.queue.queue_state import get_queue_state
from convertq.queue.status import JobStatus
from convertq.web.http_error import DatabaseDown
from convertq.web.pool import Connections

MAX_AGE_SECONDS = 1.0
MANY_EVENTS = 10_000
MAX_AGGREGATE_SECONDS = 2.0


class QueueStatus:
    def __init__(self, connections: Connections, config: Config) -> None:
        self._connections, self._config = connections, config
        self._lock = threading.Lock()
        self._answer: dict[str, Any] | DatabaseDown = {}
        self._read_again_at = 0.0
        self._aggregating = False

    def get(self) -> dict[str, Any]:
        """At most a second old; DatabaseDown is kept as long, so that waiting requests do not try one by one."""
        with self._lock:
            if time.monotonic() >= self._read_again_at:
                self._answer = self._read_or_error()
                self._read_again_at = time.monotonic() + MAX_AGE_SECONDS
            answer = self._answer
        if isinstance(answer, DatabaseDown):
            raise DatabaseDown(answer.reason, answer.public_reason)
        return answer

    def _read_or_error(self) -> dict[str, Any] | DatabaseDown:
        try:
            return self._read()
        except DatabaseDown as down:
            return down

    def _read(self) -> dict[str, Any]:
        with self._connections.reading() as database:
            state = get_queue_state(database, self._config)
            queued = Counters(database)("jobs", JobStatus.QUEUED)
            is_behind = has_uncounted_events(database, MANY_EVENTS)
        if is_behind and not self._aggregating:
            self._aggregating = True
            threading.Thread(target=self._aggregate, daemon=True).start()
        return {"breaker": state["breaker"], "queue_depth": queued}

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
