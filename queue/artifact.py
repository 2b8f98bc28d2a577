"""A file of a job as `job_artifacts` records it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from convertq.queue.database.database import Database
from convertq.queue.database.pipeline import Statement
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


def insert_artifacts(artifacts: Sequence[tuple[UUID, Artifact]]) -> Statement:
    """The statement that records them, each with its job."""
    rows = [{"job_id": str(job_id), **vars(artifact)} for job_id, artifact in artifacts]
    return "insert_artifacts", {"artifacts": json.dumps(rows)}


def list_artifacts(database: Database, job_id: UUID) -> list[DictRow]:
    """Every file that the rows know of, wherever it is: the source first."""
    return database.run("list_artifacts", id=job_id)
