"""Who is compared: convertq, its peers, and reference points that nobody should run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
from convertq.queue.database.connection import connect
from convertq.queue.database.migrations import migrate
from convertq.queue.database.url import parse_database_url

from bench import least_queue, peers_on_node, peers_on_python
from bench.contender import Contender, Place, Submit, count
from bench.documents import PDF_BYTES

BIN = Path(sys.executable).parent


class Convertq(Contender):
    """As it comes: events, fence, fsync and XML check on, log at INFO."""

    name = "convertq"
    SUBMIT = "INSERT INTO jobs (id, owner_session_id, bytes, sha256, status) VALUES (%s, 'bench', %s, %s, 'queued')"

    def prepare(self, place: Place) -> None:
        url = parse_database_url(place.database_url)
        with connect(url, "bench") as connection:
            migrate(connection, url.schema)

    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None:
        """As the README tells any application to."""
        with psycopg.connect(place.database_url) as conn, conn.cursor() as cursor:
            cursor.executemany(self.SUBMIT, map(self._row, ids))

    @contextmanager
    def submitting(self, place: Place) -> Iterator[Submit]:
        with psycopg.connect(place.database_url, autocommit=True) as conn:

            def submit(job_id: UUID) -> float:
                before = time.monotonic()
                conn.execute(self.SUBMIT, self._row(job_id))
                return before

            yield submit

    @staticmethod
    def _row(job_id: UUID) -> tuple[UUID, int, str]:
        return job_id, PDF_BYTES, job_id.hex * 2

    def commands(self, workers: int) -> list[list[str]]:
        return [[str(BIN / "convertq"), "worker", "run", "--concurrency", str(workers)]]

    def completed(self, place: Place) -> int:
        return count(place, b"SELECT count(*) FROM jobs WHERE status = 'complete'")


class BareLoop(Contender):
    """A gateway call and an atomic write over a list of files: what any queue comes on top of."""

    lacks = "No queue at all: it reads the list of files."

    def __init__(self, name: str, client: str) -> None:
        self.name, self._client = name, client

    def prepare(self, place: Place) -> None:
        pass

    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None:
        pass

    def submitting(self, place: Place) -> AbstractContextManager[Submit]:
        raise NotImplementedError("it takes no jobs")

    def commands(self, workers: int) -> list[list[str]]:
        return [[sys.executable, "-m", "bench.bare_loop", str(workers), self._client]]

    def completed(self, place: Place) -> int:
        return sum(name.endswith(".xml") for name in os.listdir(place.results))  # noqa: PTH208


class LeastQueue(Contender):
    """One statement and one commit a job, and no promise: what a queue in PostgreSQL costs at least."""

    name = "least queue"
    lacks = "No event, fence, lease, check of the state, constraint or log line; a killed worker's jobs are lost."

    def prepare(self, place: Place) -> None:
        with psycopg.connect(place.database_url) as conn:
            conn.execute(least_queue.TABLE)

    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None:
        with psycopg.connect(place.database_url) as conn, conn.cursor() as cursor:
            cursor.executemany(least_queue.ENQUEUE, [(job_id,) for job_id in ids])

    def submitting(self, place: Place) -> AbstractContextManager[Submit]:
        raise NotImplementedError("it ends when there are no jobs")

    def commands(self, workers: int) -> list[list[str]]:
        return [[sys.executable, "-m", "bench.least_queue", str(workers)]]

    def completed(self, place: Place) -> int:
        return count(place, least_queue.COMPLETED)


CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        Convertq(),
        *peers_on_python.PEERS,
        *peers_on_node.PEERS,
        LeastQueue(),
        BareLoop("bare loop", "convertq"),
        BareLoop("bare loop with urllib3", "urllib3"),
    )
}
