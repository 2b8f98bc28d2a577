"""A file of a job as `job_artifacts` records it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from uuid import UUID

from convertq.queue.database.database import Database
from psycopg.rows import DictRow


@dataclass(frozen=True)
class Artifact:
    kind: str  # result
    run: int
    attempt: int  # that made it; the one that completes the job from it may be a later one
    storage: str  # s3
    path_or_key: str
    bytes: int
    sha256: str
    content_type: str


def insert_artifact(database: Database, job_id: UUID, artifact: Artifact) -> None:
    database.run("insert_artifact", id=job_id, **asdict(artifact))


def list_artifacts(database: Database, job_id: UUID) -> list[DictRow]:
    """Every file that the rows know of, wherever it is: the source first."""
    return database.run("list_artifacts", id=job_id)
