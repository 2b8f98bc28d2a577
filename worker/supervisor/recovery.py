"""What a supervisor recovers: jobs of dead servers, jobs of its own dead workers, and orphan temporary files."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from convertq.queue.config import Config
from convertq.queue.database.connection import application_name
from convertq.queue.database.database import Database
from convertq.queue.database.reconnecting import end_sessions
from convertq.queue.job_events import JobEvents, lost_job_requeued
from convertq.queue.job_queue import JobQueue
from convertq.queue.lost_jobs import discard_temporary_files, reclaim_jobs
from convertq.queue.orphan_files import discard_orphan_files
from convertq.queue.store import open_store

#: The database's clock and this host's monotonic clock may differ a little over one heartbeat timeout.
CLOCK_DIFFERENCE_SECONDS = 0.1


class Recovery:
    def __init__(self, config: Config, events: JobEvents, notify_alive: Callable[[], None]) -> None:
        self._config, self._events, self._notify_alive = config, events, notify_alive
        self._store = open_store(config)
        self._reclaim_at = self._orphan_scan_at = math.inf

    def recover_after_registration(self, database: Database) -> None:
        """Reclaims at once, and again after one heartbeat timeout: by then this server has seen for itself that another
        one sent no heartbeat, and on a single host it is the only witness."""
        self._reclaim_jobs(database)
        discard_orphan_files(database, self._store)
        timeout_seconds = self._config.worker_heartbeat_timeout_sec
        self._reclaim_at = time.monotonic() + timeout_seconds + CLOCK_DIFFERENCE_SECONDS

    def schedule_orphan_scan(self) -> None:
        """Called after an outage: the answer of a committed reclaim, with the files to remove, may have been lost."""
        self._orphan_scan_at = time.monotonic() + self._config.heartbeat_gap_sec

    def keep_up(self, database: Database) -> None:
        now = time.monotonic()
        if now >= self._reclaim_at:
            self._reclaim_at = math.inf
            self._reclaim_jobs(database)
        if now >= self._orphan_scan_at:
            self._orphan_scan_at = math.inf
            discard_orphan_files(database, self._store)

    def finish(self, database: Database) -> None:
        """Called when the workers have ended: no orphan file may wait for a scan that this supervisor would not do."""
        if self._orphan_scan_at < math.inf:
            self._orphan_scan_at = math.inf
            discard_orphan_files(database, self._store)

    def _reclaim_jobs(self, database: Database) -> None:
        reclaim_jobs(JobQueue(database, self._config), self._store, self._events)
        self._notify_alive()

    def requeue_worker_jobs(
        self, database: Database, holder: str, begun: Sequence[UUID], *, counted: bool, reason: str
    ) -> None:
        """Requeues what a dead worker leased, after ending its session, which may still commit a claim. The attempts
        that had begun count, if `counted`."""
        if self._config.database_direct_url is None:  # through a pooler, the session may serve another client by now
            end_sessions(database, application_name(holder))
        queue = JobQueue(database, self._config)
        discard_temporary_files(queue, self._store, holder)
        for row in queue.requeue_worker_jobs(holder, begun=begun, counted=counted, reason=reason):
            self._events.emit(lost_job_requeued(row, worker=holder))
