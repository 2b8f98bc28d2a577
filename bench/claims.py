"""Claims on a large table: their time by table size, and with a snapshot held open that keeps every dead row."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from convertq.cli.embedded import EmbeddedPostgres
from convertq.worker.config import Config, read_config
from convertq.worker.database_url import parse_database_url
from convertq.worker.db import Database, connect
from convertq.worker.job_queue import JobQueue
from convertq.worker.migrations import migrate
from convertq.worker.outcome import Completed

ROWS = [int(part) for part in os.environ.get("BENCH_ROWS", "10000,1000000,10000000").split(",")]
CLAIMS = 2000
CLIENTS = 4
SECONDS = int(os.environ.get("BENCH_SECONDS", "60"))
SERVER = "bench:1:0"

FILL = """
INSERT INTO jobs (bytes, sha256, status, created_at, completed_at)
SELECT 1, md5(n::text) || md5(n::text), 'complete', now() - interval '1 day' + n * interval '1 ms', now()
  FROM generate_series(1, %s) n
"""
QUEUE = """
INSERT INTO jobs (bytes, sha256, status, queued_at, retry_after)
SELECT 1, md5(n::text) || md5(n::text), 'queued', now(), CASE WHEN n %% 10 = 0 THEN now() + interval '1 day' END
  FROM generate_series(1, %s) n
"""
SUBMIT = "INSERT INTO jobs (bytes, sha256, status) VALUES (1, md5(random()::text) || md5(random()::text), 'queued')"


@contextmanager
def server() -> Iterator[tuple[EmbeddedPostgres, Config]]:
    """Durable settings: a figure from a server that does not fsync would say nothing."""
    settings = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
    with EmbeddedPostgres(settings=settings, port=0) as postgres:
        url = parse_database_url(postgres.url())
        with connect(url, "bench") as connection:
            migrate(connection, "public")
        config = read_config({"DATABASE_URL": postgres.url()})
        register(Database.open(url, "bench"))
        yield postgres, config


def register(database: Database) -> None:
    database.run(
        "register_server", server=SERVER, hostname="bench", pid=1, version="bench", environment="bench", concurrency=1
    )


def fill(postgres: EmbeddedPostgres, done: int, queued: int) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as conn:
        conn.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
        conn.execute(FILL, [done])
        conn.execute(QUEUE, [queued])
        conn.execute("ALTER TABLE jobs ENABLE TRIGGER USER")
        conn.execute("VACUUM ANALYZE jobs")


def claim_times(config: Config) -> list[float]:
    queue = JobQueue(Database.open(config.database, "bench"), config)
    times = []
    for _ in range(CLAIMS):
        before = time.perf_counter()
        job, _ = queue.claim_job(SERVER, f"{SERVER}/1")
        times.append((time.perf_counter() - before) * 1000)
        assert job is not None
    return times


def by_size() -> None:
    print("| rows | claim p50 | p99 |\n|---|---|---|")
    for rows in ROWS:
        with server() as (postgres, config):
            fill(postgres, rows, CLAIMS * 2 + rows // 20)
            times = claim_times(config)
            print(f"| {rows:,} | {statistics.median(times):.2f} ms | {statistics.quantiles(times, n=100)[98]:.2f} ms |")


def churn(config: Config, slot: int, done: list[int], end: float) -> None:
    """Submit, claim, complete, as fast as it goes, without files or a gateway."""
    database = Database.open(config.database, "bench")
    queue = JobQueue(database, config)
    while time.monotonic() < end:
        database.connection.execute(SUBMIT)
        job, _ = queue.claim_job(SERVER, f"{SERVER}/{slot}")
        if job and queue.complete_job(job, Completed(None), "bench"):
            done[int((time.monotonic() - end + SECONDS) // 10)] += 1


def with_a_held_snapshot() -> None:
    with server() as (postgres, config), psycopg.connect(postgres.url()) as reader:
        fill(postgres, 0, 5000)  # a backlog, so that a claim finds something
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM jobs")
        done = [0] * (SECONDS // 10 + 1)
        end = time.monotonic() + SECONDS
        clients = [threading.Thread(target=churn, args=(config, slot, done, end)) for slot in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        print("\n| with a snapshot held open, after | jobs a second |\n|---|---|")
        for tens, count in enumerate(done[: SECONDS // 10]):
            print(f"| {tens * 10}–{tens * 10 + 10} s | {count / 10:.0f} |")


if __name__ == "__main__":
    by_size()
    with_a_held_snapshot()
