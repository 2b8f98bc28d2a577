"""A file of a job as `job_artifacts` records it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from convertq.queue.database.database import Database
from psycopg.rows import DictRow


@dataclass(frozen=True)
class Artifact:
    kind: str  # result
    storage: str  # s3
    location: str
    bytes: int
    sha256: str
    content_type: str


def list_artifacts(database: Database, job_id: UUID) -> list[DictRow]:
    """Every file that the rows know of, wherever it is: the source first."""
    return database.run("list_artifacts", id=job_id)
