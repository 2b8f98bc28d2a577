"""Changes to many jobs: in batches that are committed one by one, with a preview before and progress meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from convertq.queue.database.database import Database

SAMPLE_JOBS = 10
#: The jobs of one transaction, so that nobody waits long for their locks.
BATCH_JOBS = 500


@dataclass(frozen=True)
class BulkProgress:
    """How far a change in bulk is. `done` may exceed `tried`, where one job takes others along."""

    wanted: int
    tried: int
    done: int
    skipped: int  # tried, and not changed


def in_batches(ids: Sequence[UUID], size: int) -> Iterator[list[UUID]]:
    return (list(ids[start : start + size]) for start in range(0, len(ids), size))


def sample_jobs(database: Database, ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """The first of them, as a preview shows them: id, status, owner_session_id, original_filename, mapping."""
    return [dict(row) for row in database.run("list_sample", ids=list(ids[:SAMPLE_JOBS]))]
