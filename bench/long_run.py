"""A long run: many jobs drained through four workers, and what each tenth of them cost.

    python -m bench.long_run [--jobs 100000]      # BENCH_LONG=1: a million

The duration of statements comes from the server's log, of one statement in fifty; what the database read and wrote
from PostgreSQL's own counters, which lag by up to a second.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import psycopg

from bench.contender import Place
from bench.contenders import Convertq
from bench.documents import lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds
from bench.report import Row, at_least, table
from bench.round import place_for, wait_until_done, working

JOBS = int(os.environ.get("BENCH_LONG_JOBS", "1000000" if os.environ.get("BENCH_LONG") else "100000"))
WORKERS = 4
PARTS = 10
SAMPLE = 0.02
START_WITHIN_SECONDS = 40.0
DURATION = re.compile(rb"duration: ([0-9.]+) ms  (?:statement|execute [^:]*): (?:-- (\w+):|(COMMIT))")
COUNTERS = """
SELECT (SELECT blks_hit FROM pg_stat_database WHERE datname = current_database()),
       (SELECT blks_read FROM pg_stat_database WHERE datname = current_database()),
       (SELECT wal_bytes FROM pg_stat_wal)::bigint, (SELECT wal_fpi FROM pg_stat_wal),
       (SELECT sum(autovacuum_count) FROM pg_stat_user_tables)::bigint,
       (SELECT sum(autoanalyze_count) FROM pg_stat_user_tables)::bigint
"""
HEADINGS = (
    "tenth", "jobs/s", "worker, CPU ms", "PostgreSQL, CPU ms", "complete and claim p50, ms", "commit p50, ms",
    "buffers hit", "read", "WAL kB", "full pages", "vacuums", "analyzes",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """The state at the end of a part; every number only grows."""

    at: float
    jobs: int
    worker_cpu: float
    postgres_cpu: float
    log_size: int
    counters: tuple[int, ...]


class Drain:
    def __init__(self, postgres: DurablePostgres, gateway: Gateway, jobs: int) -> None:
        self._postgres, self._gateway, self._jobs = postgres, gateway, jobs
        self.samples: list[Sample] = []

    def run(self) -> None:
        with place_for(Convertq(), self._postgres, self._gateway) as place:
            Convertq().enqueue(place, lay_out(place.uploads, self._jobs))
            self._sample_statements(place)
            self._postgres.settle()
            self._gateway.reset(hold=True)
            with (
                psycopg.connect(place.database_url, autocommit=True) as conn,
                working(Convertq(), place, WORKERS) as pids,
            ):
                self._gateway.wait_for(WORKERS, START_WITHIN_SECONDS)
                self._gateway.open()
                for part in range(PARTS):
                    self._take(conn, pids)
                    self._wait_for(self._jobs * (part + 1) // PARTS)
                self._take(conn, pids)
                wait_until_done(Convertq(), place, self._gateway, self._jobs)
                self._statements = self._statement_times()

    def _sample_statements(self, place: Place) -> None:
        settings = {"log_min_duration_sample": "0", "log_statement_sample_rate": str(SAMPLE)}
        with psycopg.connect(place.database_url, autocommit=True) as conn:
            for name, value in settings.items():
                conn.execute(f"ALTER DATABASE {conn.info.dbname} SET {name} = '{value}'".encode())

    def _wait_for(self, jobs: int) -> None:
        while self._gateway.count() < jobs:
            time.sleep(0.05)

    def _take(self, conn: psycopg.Connection, pids: list[int]) -> None:
        counters = conn.execute(COUNTERS).fetchone()
        assert counters
        assert self._postgres.pid
        self.samples.append(Sample(
            time.monotonic(), self._gateway.count(), cpu_seconds(*pids), cpu_seconds(self._postgres.pid),
            self._postgres.log.stat().st_size, counters,
        ))  # fmt: skip

    def _statement_times(self) -> list[dict[str, float]]:
        """The p50 of each statement in each part, in milliseconds."""
        found = []
        with open(self._postgres.log, "rb") as log:
            for start, end in pairwise(self.samples):
                log.seek(start.log_size)
                times: dict[str, list[float]] = {}
                for spent, name, commit in DURATION.findall(log.read(end.log_size - start.log_size)):
                    times.setdefault((name or commit).decode(), []).append(float(spent))
                found.append({name: median(of) for name, of in times.items()})
        return found

    def rates(self) -> list[float]:
        return [(end.jobs - start.jobs) / (end.at - start.at) for start, end in pairwise(self.samples)]

    def table(self) -> str:
        lines = [f"| {' | '.join(HEADINGS)} |", "|" + "---:|" * len(HEADINGS)]
        for number, (start, end) in enumerate(pairwise(self.samples)):
            jobs, times = end.jobs - start.jobs, self._statements[number]
            hit, read, wal, pages, vacuums, analyzes = (
                after - before for before, after in zip(start.counters, end.counters, strict=True)
            )
            lines.append("| " + " | ".join((
                f"{number + 1}", f"{self.rates()[number]:.0f}",
                f"{1000 * (end.worker_cpu - start.worker_cpu) / jobs:.2f}",
                f"{1000 * (end.postgres_cpu - start.postgres_cpu) / jobs:.2f}",
                f"{times.get('complete_and_claim', 0):.2f}", f"{times.get('COMMIT', 0):.2f}",
                f"{hit / jobs:.0f}", f"{read / jobs:.1f}", f"{wal / jobs / 1000:.1f}", f"{pages / jobs:.2f}",
                f"{vacuums}", f"{analyzes}",
            )) + " |")  # fmt: skip
        return "\n".join(lines)

    def row(self) -> Row:
        first, last = self.rates()[0], self.rates()[-1]
        measure = f"{self._jobs:,} jobs through {WORKERS} workers: the last tenth against the first"
        return at_least(measure, 0.9, last / first, "×", f"{last:.0f} and {first:.0f} jobs/s")


def scene(postgres: DurablePostgres, gateway: Gateway, jobs: int = JOBS) -> str:
    drain = Drain(postgres, gateway, jobs)
    drain.run()
    return f"{table([drain.row()])}\n\nFor each job of a tenth:\n\n{drain.table()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    chosen = parser.parse_args()
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(scene(postgres, gateway, chosen.jobs))


if __name__ == "__main__":
    main()
