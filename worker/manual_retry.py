"""Retry by hand: a failed job is queued again only while its source file is there."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import psycopg
from convertq.worker.db import Database
from convertq.worker.files import Files, is_regular

BATCH = 500  # jobs per statement


def retry_job(database: Database, files: Files, job_id: UUID) -> bool:
    return retry_jobs(database, files, [job_id]) == 1


def retry_jobs(database: Database, files: Files, ids: Sequence[UUID]) -> int:
    """How many were queued; the others are not failed, or have no source any more."""
    return sum(_retry_batch(database, files, ids[start : start + BATCH]) for start in range(0, len(ids), BATCH))


def _retry_batch(database: Database, files: Files, ids: Sequence[UUID]) -> int:
    """Looks at the files again while the rows are locked: cleanup may have removed one a moment ago."""
    there = _with_source(files, ids)
    while there:
        with database.transaction():
            queued = [row["id"] for row in database.run("retry_jobs", ids=there)]
            still_there = _with_source(files, queued)
            if len(still_there) == len(queued):
                return len(queued)
            raise psycopg.Rollback
        there = still_there
    return 0


def _with_source(files: Files, ids: Sequence[UUID]) -> list[UUID]:
    return [job_id for job_id in ids if is_regular(files.source(job_id))]
