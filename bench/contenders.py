"""Who is compared: how each makes its tables, takes jobs, is started, and says what it has completed."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
from convertq.worker.database_url import parse_database_url
from convertq.worker.db import connect
from convertq.worker.migrations import migrate

from bench.documents import PDF_BYTES

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Place:
    """What a contender gets for a round: a database, a gateway, and directories of its own."""

    database_url: str
    gateway_url: str
    home: Path

    @property
    def uploads(self) -> Path:
        return self.home / "uploads"

    @property
    def results(self) -> Path:
        return self.home / "results"

    @property
    def log(self) -> Path:
        return self.home / "log"

    def environment(self, **more: str) -> dict[str, str]:
        """The same names for every contender; nothing of the caller's settings but what a program needs to start."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept, "DATABASE_URL": self.database_url, "GATEWAY_URL": self.gateway_url,
            "UPLOADS_DIR": str(self.uploads), "RESULTS_DIR": str(self.results), **more,
        }  # fmt: skip


class Contender(ABC):
    name: str

    @abstractmethod
    def prepare(self, place: Place) -> None:
        """Makes its tables."""

    @abstractmethod
    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None: ...

    @abstractmethod
    def command(self, workers: int) -> list[str]: ...

    @abstractmethod
    def completed(self, place: Place) -> int:
        """As its own table says."""

    def environment(self, place: Place) -> Mapping[str, str]:
        return place.environment()

    def _count(self, place: Place, statement: bytes) -> int:
        with psycopg.connect(place.database_url, autocommit=True) as conn:
            row = conn.execute(statement).fetchone()
        assert row
        return int(row[0])


class Convertq(Contender):
    """As it comes: events, fence, fsync and XML check on, INFO log."""

    name = "convertq"
    SUBMIT = "INSERT INTO jobs (id, owner_session_id, bytes, sha256, status) VALUES (%s, 'bench', %s, %s, 'queued')"

    def prepare(self, place: Place) -> None:
        url = parse_database_url(place.database_url)
        with connect(url, "bench") as connection:
            migrate(connection, url.schema)

    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None:
        """As the README tells any application to."""
        with psycopg.connect(place.database_url) as conn, conn.cursor() as cursor:
            cursor.executemany(self.SUBMIT, [(job_id, PDF_BYTES, job_id.hex * 2) for job_id in ids])

    def command(self, workers: int) -> list[str]:
        return [str(BIN / "convertq"), "worker", "run", "--concurrency", str(workers)]

    def environment(self, place: Place) -> Mapping[str, str]:
        return place.environment(WORKER_ENVIRONMENT="bench")

    def completed(self, place: Place) -> int:
        return self._count(place, b"SELECT count(*) FROM jobs WHERE status = 'complete'")


CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in (Convertq(),)}
