"""The peers in Python, in an environment of their own: two processes with aiohttp, or four that block."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

from bench import redis
from bench.contender import ROOT, Contender, Place, Submit, count, count_uploads

BIN = ROOT / "bench" / ".peers" / "bin"
PROCESSES = 2
#: true of every peer: the job writes the file, and its queue knows nothing of it
FILE = "The result is no part of the completion: a worker that lost its job may still replace the file"
#: as their statements are written: they name the job, and not who has it
NO_FENCE = f"{FILE}, and its completion is accepted"


class Peer(Contender):
    """Its tables, its jobs and its submissions come through its own API, in a process of its own environment."""

    module: str

    def missing(self) -> str:
        return "" if (BIN / "python").exists() else "`make bench-peers` has not installed it"

    def prepare(self, place: Place) -> None:
        self._run(place, "prepare")

    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None:
        self._run(place, "enqueue", "\n".join(map(str, ids)))

    def command(self, verb: str) -> list[str]:
        return [str(BIN / "python"), "-m", "bench.peers", self.module, verb]

    def _run(self, place: Place, verb: str, text: str = "") -> None:
        environment = place.environment(**self.settings(place, 1))
        subprocess.run(self.command(verb), input=text, env=environment, text=True, check=True)

    @contextmanager
    def submitting(self, place: Place) -> Iterator[Submit]:
        """In a process that stays, so that its connection is open."""
        environment = place.environment(**self.settings(place, 1))
        with subprocess.Popen(
            self.command("submit"), env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            ids, times = process.stdin, process.stdout
            assert ids
            assert times

            def submit(job_id: UUID) -> float:
                print(job_id, file=ids, flush=True)
                return float(times.readline())

            yield submit
            ids.close()


class Procrastinate(Peer):
    module = "procrastinate"
    lacks = f"{NO_FENCE}. A lost worker's job stays `doing` until a task that the user writes finds it."

    def __init__(self, name: str, files_in: str) -> None:
        self.name, self._files_in = name, files_in

    def commands(self, workers: int) -> list[list[str]]:
        return [self.command("work")] * PROCESSES

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        return {"CONCURRENCY": str(max(1, workers // PROCESSES)), "FILES_IN": self._files_in}

    def completed(self, place: Place) -> int:
        return count(place, b"SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")


class PgQueuer(Peer):
    """The heartbeat timeout is long: while the gateway is held, a job must not be taken for a dead worker's.

    No process takes more than two batches ahead, the least that PgQueuer allows: others would be left without work.
    """

    module = "pgqueuer"
    lacks = f"{NO_FENCE}. A batch is claimed ahead, and completions are written late, several at a time."

    def __init__(self, name: str, application: str = "main", batch_size: int = 10, files_in: str = "loop") -> None:
        self.name, self._application, self._batch_size, self._files_in = name, application, batch_size, files_in
        self.fewest_jobs = 4 * 4 * batch_size

    def _processes(self, workers: int) -> int:
        """A process whose loop is blocked does one job at a time."""
        return workers if self._application == "blocking" else PROCESSES

    def commands(self, workers: int) -> list[list[str]]:
        worker = [str(BIN / "pgq"), "run", f"bench.peers.pgqueuer_app:{self._application}"]
        ahead = ["--batch-size", str(self._batch_size), "--max-concurrent-tasks", str(2 * self._batch_size)]
        return [[*worker, "--heartbeat-timeout", "300", *ahead]] * self._processes(workers)

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        return {"CONCURRENCY": str(max(1, workers // PROCESSES)), "FILES_IN": self._files_in}

    def completed(self, place: Place) -> int:
        return count(place, b"SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")


class Dramatiq(Peer):
    """As many processes as jobs are to run at a time, with one thread in each."""

    name, module = "dramatiq + Redis", "dramatiq"
    lacks = f"{FILE}. A power cut loses up to a second of submissions. A job that is done leaves no record."

    def missing(self) -> str:
        return super().missing() or redis.missing()

    def serving(self, place: Place) -> AbstractContextManager[list[int]]:
        return redis.serving(place.home)

    def commands(self, workers: int) -> list[list[str]]:
        return [[str(BIN / "dramatiq"), "bench.peers.dramatiq_app", "--processes", str(workers), "--threads", "1"]]

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        return {"REDIS_URL": f"unix://{redis.socket_path(place.home)}"}

    def completed(self, place: Place) -> int:
        """Its message is deleted when it is acknowledged."""
        return count_uploads(place) - redis.length_of_hash(place.home, "dramatiq:convert.msgs")


PEERS: tuple[Peer, ...] = (
    Procrastinate("Procrastinate", "loop"),
    Procrastinate("Procrastinate (files in a thread)", "thread"),
    PgQueuer("PgQueuer"),
    PgQueuer("PgQueuer (files in a thread)", files_in="thread"),
    PgQueuer("PgQueuer (blocking)", "blocking"),
    Dramatiq(),
)
