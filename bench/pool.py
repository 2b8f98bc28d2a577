"""What a pool of sixteen costs: memory after work, statements while idle, and whether a lease is extended in place.

python -m bench.pool
"""

from __future__ import annotations

import os
import re
import time
from statistics import mean

import psycopg

from bench.contender import Contender, Place
from bench.contenders import Convertq
from bench.documents import lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.processes import family, pss_megabytes
from bench.report import Row, at_least, at_most, table
from bench.round import place_for, wait_until_done, working

WORKERS = 16
JOBS = int(os.environ.get("BENCH_POOL_JOBS", "3200"))  # before memory is read
IDLE_SECONDS = 20.0
EXTENDING_SECONDS = 20.0
EXTEND_OFTEN = {"WORKER_LEASE_EXTEND_SEC": "1", "WORKER_LEASE_TTL_SEC": "10"}
STATEMENT = re.compile(rb"LOG:  (statement|execute [^:]*):")
UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'"


def pss_of_workers(contender: Contender, postgres: DurablePostgres, gateway: Gateway) -> list[float]:
    """Megabytes of each worker of a pool that has done its jobs."""
    with place_for(contender, postgres, gateway) as place:
        contender.enqueue(place, lay_out(place.uploads, JOBS))
        gateway.reset()
        with working(contender, place, WORKERS) as (supervisor,):
            wait_until_done(contender, place, gateway, JOBS)
            return [pss_megabytes(pid) for pid in family(supervisor) if pid != supervisor]


def after_work(postgres: DurablePostgres, gateway: Gateway) -> list[Row]:
    """Memory, and then statements, of the same pool."""
    with place_for(Convertq(), postgres, gateway) as place:
        _log_statements(place)
        Convertq().enqueue(place, lay_out(place.uploads, JOBS))
        gateway.reset()
        with working(Convertq(), place, WORKERS) as (supervisor,):
            wait_until_done(Convertq(), place, gateway, JOBS)
            workers = [pss_megabytes(pid) for pid in family(supervisor) if pid != supervisor]
            assert len(workers) == WORKERS
            statements = _statements_while_idle(postgres)
    note = f"{min(workers):.1f}–{max(workers):.1f}, {JOBS} jobs done"
    return [
        at_most("memory: PSS per worker after work, N = 16", 10, mean(workers), " MB", note),
        at_most("idle pool of 16: statements a second in all", 16, statements),
    ]


def _log_statements(place: Place) -> None:
    with psycopg.connect(place.database_url, autocommit=True) as conn:
        conn.execute(
            "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET log_statement = ''all''', current_database()); END$$"
        )


def _statements_while_idle(postgres: DurablePostgres) -> float:
    time.sleep(3)  # what follows the last job is over
    before = postgres.log.stat().st_size
    time.sleep(IDLE_SECONDS)
    with open(postgres.log, "rb") as log:
        log.seek(before)
        return len(STATEMENT.findall(log.read())) / IDLE_SECONDS


def lease_extensions(postgres: DurablePostgres, gateway: Gateway) -> Row:
    """The gateway holds every answer back, so that nothing but leases and progress is written meanwhile."""
    with place_for(Convertq(), postgres, gateway) as place:
        Convertq().enqueue(place, lay_out(place.uploads, WORKERS * 20))
        gateway.reset(hold=True)
        with working(Convertq(), place, WORKERS, **EXTEND_OFTEN):
            gateway.wait_for(WORKERS, timeout=40)
            time.sleep(2)  # the claims have reached the statistics
            before = _updates(place)
            time.sleep(EXTENDING_SECONDS)
            after = _updates(place)
            gateway.open()
            wait_until_done(Convertq(), place, gateway, WORKERS * 20)
    all_of_them, hot = (after[0] - before[0], after[1] - before[1])
    return at_least(
        "lease extensions that are HOT updates", 95, 100 * hot / all_of_them, " %", f"{hot} of {all_of_them}"
    )


def _updates(place: Place) -> tuple[int, int]:
    with psycopg.connect(place.database_url) as conn:
        row = conn.execute(UPDATES).fetchone()
    assert row
    return int(row[0]), int(row[1])


def rows(postgres: DurablePostgres, gateway: Gateway) -> list[Row]:
    return [*after_work(postgres, gateway), lease_extensions(postgres, gateway)]


def main() -> None:
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(table(rows(postgres, gateway)))


if __name__ == "__main__":
    main()
