"""A claim costs the same whatever is in the table: its p50 on a big table against a small one, in turns.

    python -m bench.claims

BENCH_QUEUED (1,000,000), BENCH_TERMINAL (10,000,000), BENCH_NOT_DUE and BENCH_BLOCKED (300,000) are the sizes.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from statistics import median, quantiles

from convertq.queue.claim import ClaimCursor
from convertq.queue.config import Config
from convertq.queue.database.database import Database

from bench.big_table import SERVER, Rows, big_table
from bench.postgres import DurablePostgres
from bench.report import Row, at_most, table

SMALL = Rows(queued=1000)
LARGE = Rows(
    queued=int(os.environ.get("BENCH_QUEUED", "1000000")), terminal=int(os.environ.get("BENCH_TERMINAL", "10000000"))
)
WAITING = Rows(
    queued=1000,
    not_due=int(os.environ.get("BENCH_NOT_DUE", "300000")),
    blocked=int(os.environ.get("BENCH_BLOCKED", "300000")),
)
WARM_UP, TURNS, CLAIMS = 50, 15, 50  # claims before the clock; turns; claims in each


class Claimer:
    """One worker's connection, and how long each of its claims took."""

    def __init__(self, config: Config) -> None:
        self._cursor = ClaimCursor(Database.open(config.database, "bench", claims=True), config)
        self.claim(WARM_UP)

    def claim(self, number: int) -> list[float]:
        times = []
        for _ in range(number):
            before = time.perf_counter()
            job = self._cursor.claim_job(SERVER, f"{SERVER}/1").job
            times.append((time.perf_counter() - before) * 1000)
            assert job is not None
        return times


def compare(postgres: DurablePostgres, large: Rows, small: Rows) -> tuple[list[float], list[float]]:
    """Milliseconds of each claim."""
    with ExitStack() as loaded:
        claimers = [
            Claimer(loaded.enter_context(big_table(postgres, name, rows)))
            for name, rows in (("large", large), ("small", small))
        ]
        times: tuple[list[float], list[float]] = [], []
        for _ in range(TURNS):
            for claimer, found in zip(claimers, times, strict=True):
                found += claimer.claim(CLAIMS)
        return times


def row(postgres: DurablePostgres, large: Rows) -> Row:
    on_large, on_small = compare(postgres, large, SMALL)
    p99 = quantiles(on_large, n=100)[98]
    note = f"{median(on_large):.2f} and {median(on_small):.2f} ms, p99 {p99:.1f} ms"
    return at_most(f"claim p50, {large}, against {SMALL}", 1.3, median(on_large) / median(on_small), "×", note)


def rows(postgres: DurablePostgres) -> list[Row]:
    return [row(postgres, large) for large in (LARGE, WAITING)]


def main() -> None:
    with DurablePostgres() as postgres:
        print(table(rows(postgres)))


if __name__ == "__main__":
    main()
