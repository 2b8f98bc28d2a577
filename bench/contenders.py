"""Who is compared. The peers run as their documentation recommends for throughput, in an environment of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
from convertq.worker.database_url import parse_database_url
from convertq.worker.db import connect
from convertq.worker.migrations import migrate

from bench import least_queue
from bench.contender import ROOT, Contender, Place, Submit, count
from bench.documents import PDF_BYTES

BIN = Path(sys.executable).parent
PEERS = ROOT / "bench" / ".peers" / "bin"
#: of Procrastinate and PgQueuer; more workers than that are threads or batches in them
PROCESSES = 4


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


class Peer(Contender):
    module: str

    def prepare(self, place: Place) -> None:
        self._ask(place, "prepare")

    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None:
        self._ask(place, "enqueue", "\n".join(map(str, ids)))

    def _command(self, verb: str) -> list[str]:
        return [str(PEERS / "python"), "-m", "bench.peers", self.module, verb]

    def _ask(self, place: Place, verb: str, text: str = "") -> None:
        subprocess.run(self._command(verb), input=text, env=place.environment(), text=True, check=True)

    @contextmanager
    def submitting(self, place: Place) -> Iterator[Submit]:
        """Through the peer's own API, in a process that stays."""
        with subprocess.Popen(
            self._command("submit"), env=place.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            asked, told = process.stdin, process.stdout
            assert asked
            assert told

            def submit(job_id: UUID) -> float:
                print(job_id, file=asked, flush=True)
                return float(told.readline())

            yield submit
            asked.close()


class Procrastinate(Peer):
    """Synchronous tasks: several worker processes, and threads in them when more is to run at a time."""

    name, module = "Procrastinate", "procrastinate"

    def commands(self, workers: int) -> list[list[str]]:
        worker = [str(PEERS / "procrastinate"), "--app", "bench.peers.procrastinate_app.app", "worker"]
        processes = min(PROCESSES, workers)
        return [[*worker, "--concurrency", str(workers // processes)]] * processes

    def completed(self, place: Place) -> int:
        return count(place, b"SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")


class PgQueuer(Peer):
    module = "pgqueuer"

    def __init__(self, name: str, batch_size: int, application: str = "main") -> None:
        self.name, self._batch_size, self._application = name, batch_size, application
        self.fewest_jobs = 4 * PROCESSES * batch_size

    def commands(self, workers: int) -> list[list[str]]:
        """Patient about heartbeats: while the gateway is held, a job must not be taken for a dead worker's.

        And none takes more ahead than two batches, the least that PgQueuer allows: others would be left without work.
        """
        worker = [str(PEERS / "pgq"), "run", f"bench.peers.pgqueuer_app:{self._application}"]
        ahead = ["--batch-size", str(self._batch_size), "--max-concurrent-tasks", str(2 * self._batch_size)]
        return [[*worker, "--heartbeat-timeout", "300", *ahead]] * workers

    def completed(self, place: Place) -> int:
        return count(place, b"SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")


CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (
        Convertq(),
        Procrastinate(),
        PgQueuer("PgQueuer", batch_size=100),
        PgQueuer("PgQueuer one at a time", batch_size=1),
        PgQueuer("PgQueuer blocking its loop", batch_size=100, application="blocking"),
        LeastQueue(),
        BareLoop("bare loop", "convertq"),
        BareLoop("bare loop with requests", "requests"),
    )
}
