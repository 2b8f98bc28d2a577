"""Deadlines: a job that could not begin in time fails with EXPIRED."""

from __future__ import annotations

import time

from convertq.queue.database.database import Database
from convertq.queue.job_events import JobEvents, JobExpired

BATCH_JOBS = 100  # as in expire_jobs
#: A supervisor expires jobs between two checks of its workers, so that a pass must be short.
PASS_SECONDS = 0.5


def expire_jobs(database: Database, events: JobEvents) -> bool:
    """Whether some may be left: one pass takes a bounded time."""
    ends = time.monotonic() + PASS_SECONDS
    while True:
        rows = database.run("expire_jobs")
        for row in rows:
            events.emit(JobExpired(row))
        if len(rows) < BATCH_JOBS:
            return False
        if time.monotonic() > ends:
            return True
