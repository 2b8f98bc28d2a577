"""A snapshot that somebody holds keeps every dead row in the table: jobs a second with one held, and without.

    python -m bench.snapshot               # BENCH_SECONDS=60 BENCH_DEAD=200000

Two databases of one server, side by side (a snapshot holds back the vacuum of its own database alone), each with two
clients that submit, claim and complete as fast as they can, without files and gateway. So that a slow machine meets
what a fast one does, many jobs are processed first, all at once, with the snapshot held already. What idle workers do
under a snapshot is in bench.idle.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection

import psycopg
from convertq.queue.breaker import Breaker
from convertq.queue.claim import ClaimCursor
from convertq.queue.completion import FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed

from bench.big_table import SERVER, Rows, big_table
from bench.postgres import DurablePostgres
from bench.report import Row, at_least, table

SECONDS = int(os.environ.get("BENCH_SECONDS", "60"))
SLICE_SECONDS = 10  # the unit of the figures
CLIENTS = 2  # for each database
DEAD = int(os.environ.get("BENCH_DEAD", "200000"))
BACKLOG = Rows(queued=5000 + DEAD)
CLAIM = """
UPDATE jobs SET status = 'processing', leased_by = 'bench:1:0/9', lease_expires_at = now() + interval '1 h',
       attempt_count = 1
 WHERE id IN (SELECT id FROM jobs WHERE status = 'queued' ORDER BY created_at LIMIT %s)
"""
COMPLETE = """
UPDATE jobs SET status = 'complete', completed_at = now(), leased_by = NULL, lease_expires_at = NULL
 WHERE status = 'processing'
"""
SUBMIT = "INSERT INTO jobs (bytes, sha256, status) VALUES (1, md5(random()::text) || md5(random()::text), 'queued')"

Slices = list[int]


def churn(config: Config, slot: int, end: float, tell: Connection) -> None:
    """Jobs done in each slice of the time."""
    database = Database.open(config.database, "bench", claims=True)
    queue, cursor = JobQueue(database, config), ClaimCursor(database, config)
    breaker = Breaker(config, Log(config))
    done = [0] * (SECONDS // SLICE_SECONDS + 1)
    while (now := time.monotonic()) < end:
        database.connection.execute(SUBMIT)
        job = cursor.claim_job(SERVER, f"{SERVER}/{slot}").job
        if job:
            with queue.completing([FinishedJob(job, Completed("bench"))], breaker):
                pass
            done[int((now - end + SECONDS) // SLICE_SECONDS)] += 1
    tell.send(done)


def hold(config: Config) -> psycopg.Connection:
    reader = psycopg.connect(config.database.conninfo)
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM jobs")
    return reader


def leave_dead_rows(config: Config) -> None:
    with psycopg.connect(config.database.conninfo, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute(CLAIM, [DEAD])
        conn.execute(COMPLETE)
        conn.execute("VACUUM ANALYZE jobs")


def run(configs: list[Config]) -> list[Slices]:
    end = time.monotonic() + SECONDS
    fork = multiprocessing.get_context("fork")
    told = []
    for config in configs:
        for slot in range(CLIENTS):
            hear, tell = fork.Pipe(duplex=False)
            fork.Process(target=churn, args=(config, slot, end, tell), daemon=True).start()
            told.append(hear)
    counts = [hear.recv() for hear in told]
    return [[sum(of) for of in zip(*counts[first : first + CLIENTS], strict=True)] for first in (0, CLIENTS)]


def rows(postgres: DurablePostgres) -> list[Row]:
    with ExitStack() as loaded:
        configs = [loaded.enter_context(big_table(postgres, name, BACKLOG)) for name in ("held", "free")]
        loaded.enter_context(hold(configs[0]))
        for config in configs:
            leave_dead_rows(config)
        whole = SECONDS // SLICE_SECONDS
        held, free = ([count / SLICE_SECONDS for count in counts[:whole]] for counts in run(configs))
    print(f"jobs/s by {SLICE_SECONDS} s, with a snapshot held: {held}, without: {free}")
    note = f"{held[-1]:.0f} and {free[-1]:.0f} jobs/s in the last {SLICE_SECONDS} s, side by side"
    measure = f"jobs/s after {SECONDS} s with a REPEATABLE READ reader open, against without"
    return [at_least(measure, 0.8, held[-1] / free[-1], "×", note)]


def main() -> None:
    with DurablePostgres() as postgres:
        print(table(rows(postgres)))


if __name__ == "__main__":
    main()
