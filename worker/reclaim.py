"""Reclaiming by hand: pass after pass, until nothing of a lost worker is left."""

from __future__ import annotations

from convertq.worker.config import Config
from convertq.worker.db import Database
from convertq.worker.files import Files, discard
from convertq.worker.job_queue import JobQueue

FULL_PASS = 100  # rows; a pass that finds fewer was the last


def reclaim_all(database: Database, config: Config, files: Files) -> tuple[int, int]:
    """How many were given back to the queue, and how many were given up."""
    queue, statuses = JobQueue(database, config), []
    while True:
        rows = queue.reclaim_jobs()
        for row in rows:
            discard(files.part(row["id"], row["attempt"], row["holder"]))
            statuses.append(row["status"])
        if len(rows) < FULL_PASS:
            break
    given_up = statuses.count("failed")
    return len(statuses) - given_up, given_up
