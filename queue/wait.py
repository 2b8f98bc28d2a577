"""Waiting until jobs have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from uuid import UUID

from convertq.queue.backoff import Backoff
from convertq.queue.database.database import Database
from convertq.queue.jobs import get_statuses
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow
from tenacity import wait_exponential

PAUSES_SECONDS = wait_exponential(multiplier=0.2, exp_base=1.5, max=1.0)


def has_ended(row: DictRow) -> bool:
    return JobStatus(row["status"]).is_terminal


def poll_statuses(
    database: Database, ids: Sequence[UUID], timeout_seconds: float | None = None
) -> Iterator[dict[UUID, DictRow]]:
    """The statuses of the jobs that exist, again and again; the last ones when all have ended or the time is over.

    The pauses grow while no job ends: a caller that waits for hours costs the database one short statement a second.
    """
    deadline = time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)
    ended, backoff = 0, Backoff(PAUSES_SECONDS)
    while True:
        rows = get_statuses(database, ids)
        yield rows
        left = deadline - time.monotonic()
        ended_before, ended = ended, sum(map(has_ended, rows.values()))
        if ended == len(rows) or left <= 0:
            return
        if ended > ended_before:
            backoff.reset()
        time.sleep(min(backoff.next_pause_seconds(), left))
