"""Reclaiming by hand: pass after pass, until no job of a lost worker is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.job_events import JobEvents
from convertq.queue.job_queue import JobQueue
from convertq.queue.lost_jobs import reclaim_jobs
from convertq.queue.status import JobStatus
from convertq.queue.store.protocol import Store
from psycopg.rows import DictRow

FULL_PASS_JOBS = 100  # a pass that finds fewer was the last
CHECK_EVERY_SECONDS = 1.0


def reclaim_all(
    database: Database, config: Config, store: Store, listening_since: datetime | None = None
) -> tuple[int, int]:
    """How many jobs were requeued, and how many were given up."""
    queue, statuses = JobQueue(database, config), []
    while True:
        rows = reclaim_jobs(queue, store, JobEvents(), listening_since)
        statuses += [row["status"] for row in rows]
        if len(rows) < FULL_PASS_JOBS:
            break
    given_up = statuses.count(JobStatus.FAILED)
    return len(statuses) - given_up, given_up


def reclaim_and_listen(
    database: Database, config: Config, store: Store, will_listen: Callable[[int], None]
) -> tuple[int, int]:
    """As `reclaim_all`; then this process watches, for one heartbeat timeout, the servers that no other one watches.

    `will_listen` is called with the number of silent servers before the wait begins.
    """
    reclaimed, given_up = reclaim_all(database, config, store)
    silent = _find_silent_servers(database, config)
    if silent:
        will_listen(len(silent))
    listening_since = checked_at = silent[0]["now"] if silent else datetime.max
    while silent:
        time.sleep(CHECK_EVERY_SECONDS)
        more = reclaim_all(database, config, store, listening_since)
        reclaimed, given_up = reclaimed + more[0], given_up + more[1]
        silent = _find_silent_servers(database, config)
        if silent and silent[0]["now"] - checked_at > timedelta(seconds=config.heartbeat_gap_sec):
            listening_since = silent[0]["now"]  # no heartbeat could be seen in between
        checked_at = silent[0]["now"] if silent else checked_at
    return reclaimed, given_up


def _find_silent_servers(database: Database, config: Config) -> list[DictRow]:
    return database.run("find_silent_servers", heartbeat_timeout=config.worker_heartbeat_timeout_sec)
