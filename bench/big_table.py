"""Tables as they are after years: loaded quickly, around the triggers, with every constraint true and the counts right.

The indexes that no constraint needs are made after the rows are there, which is several times faster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from convertq.queue.config import Config, read_config
from convertq.queue.database.connection import connect
from convertq.queue.database.database import Database
from convertq.queue.database.migrations import migrate

from bench.postgres import DurablePostgres

SERVER = "bench:1:0"

TERMINAL = """
INSERT INTO jobs (id, bytes, sha256, status, created_at, queued_at, started_at, completed_at, failed_at, updated_at,
                  attempt_count, error_code)
SELECT lpad(to_hex(n), 32, '0')::uuid, 1, lpad(to_hex(n), 64, '0'), status, at, at, at,
       CASE status WHEN 'complete' THEN at END, CASE status WHEN 'failed' THEN at END, at, 1,
       CASE status WHEN 'failed' THEN 'GW_4XX' END
  FROM (SELECT n, now() - interval '1 year' + n * interval '1 s' AS at,
               CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'complete' END AS status
          FROM generate_series(1, {terminal}) AS n) AS made
"""
QUEUED = """
INSERT INTO jobs (bytes, sha256, status, created_at, queued_at)
SELECT 2, lpad(to_hex(n), 64, '0'), 'queued', at, at
  FROM (SELECT n, now() - interval '1 hour' + n * interval '1 ms' AS at
          FROM generate_series(1, {queued}) AS n) AS made
"""
NOT_DUE = """
INSERT INTO jobs (bytes, sha256, status, priority, created_at, queued_at, attempt_count, retry_after)
SELECT 3, lpad(to_hex(n), 64, '0'), 'queued', 1, now() - interval '1 day', now(), 1, now() + interval '1 day'
  FROM generate_series(1, {not_due}) AS n
"""
BLOCKED = """
WITH made AS (
    INSERT INTO jobs (bytes, sha256, status, priority, created_at)
    SELECT 4, lpad(to_hex(n), 64, '0'), 'uploaded', 1, now() - interval '1 day'
      FROM generate_series(1, {blocked}) AS n
    RETURNING id
)
INSERT INTO job_dependencies (job_id, depends_on)
SELECT id, (SELECT id FROM jobs WHERE status = 'queued' ORDER BY created_at DESC LIMIT 1) FROM made
"""
NEEDED = "UPDATE jobs SET needs_follow_up = true WHERE id IN (SELECT depends_on FROM job_dependencies)"
LATER = """
SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition FROM pg_index
 WHERE indrelid = %s::regclass AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
"""


@dataclass(frozen=True)
class Rows:
    queued: int = 1000
    terminal: int = 0
    not_due: int = 0
    blocked: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in vars(self).items() if number)


@contextmanager
def big_table(postgres: DurablePostgres, name: str, rows: Rows) -> Iterator[Config]:
    with postgres.database(name) as url:
        config = read_config({"DATABASE_URL": url})
        with connect(config.database, "bench") as connection:
            migrate(connection, config.database.schema)
        began = time.monotonic()
        fill(url, rows)
        print(f"{rows}: loaded in {time.monotonic() - began:.0f} s", flush=True)
        register(config)
        yield config


def fill(url: str, rows: Rows) -> None:
    """CHECK and UNIQUE hold as for any writer; foreign keys hold because the rows are made so."""
    with psycopg.connect(url, autocommit=True) as conn:
        with loading(conn, "jobs"):
            for statement in (TERMINAL, QUEUED, NOT_DUE, *((BLOCKED, NEEDED) if rows.blocked else ())):
                conn.execute(statement.format(**vars(rows)).encode())
        conn.execute("SELECT recount_jobs()")
        conn.execute("VACUUM ANALYZE")
        conn.execute("CHECKPOINT")


@contextmanager
def loading(conn: psycopg.Connection, name: str) -> Iterator[None]:
    """Rows of this table are inserted around the triggers, and the indexes are made at the end."""
    conn.execute("SET session_replication_role = replica")
    conn.execute("SET maintenance_work_mem = '256MB'")
    later = conn.execute(LATER, [name]).fetchall()
    for index, _ in later:
        conn.execute(f"DROP INDEX {index}".encode())
    yield
    for _, definition in later:
        conn.execute(definition.replace(" ON ONLY ", " ON ", 1).encode())  # of a partitioned table: in each partition


def register(config: Config) -> None:
    database = Database.open(config.database, "bench")
    database.run(
        "register_server",
        server=SERVER,
        hostname="bench",
        pid=1,
        version="bench",
        environment="bench",
        concurrency=1,
        gateways="[]",
        gateways_digest="",
        takes_turns=False,
        owner_max_running=0,
    )
    database.close()
