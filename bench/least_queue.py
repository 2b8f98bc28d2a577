"""The least queue: one table, and one statement and commit a job; no event, check, fence or lease.

python -m bench.least_queue WORKERS   # the environment is that of a worker; it stays until it is ended

The call and the write are convertq's own, as in the bare loop. It loses jobs when it is killed: nobody should run it.
"""

from __future__ import annotations

import os
import sys
from uuid import UUID

import psycopg

from bench.bare_loop import run_and_stay, with_its_own_client

TABLE = """
CREATE TABLE least (id uuid PRIMARY KEY, place bigserial, status text NOT NULL DEFAULT 'queued') WITH (fillfactor = 80);
CREATE INDEX least_queued ON least (place) WHERE status = 'queued'
"""
ENQUEUE = "INSERT INTO least (id) VALUES (%s)"
COMPLETED = b"SELECT count(*) FROM least WHERE status = 'complete'"
NO_JOB = str(UUID(int=0)).encode()
NEXT = b"""
WITH done AS (UPDATE least SET status = 'complete' WHERE id = $1)
UPDATE least SET status = 'processing'
 WHERE id = (SELECT id FROM least WHERE status = 'queued' ORDER BY place LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id
"""


def work() -> None:
    convert = with_its_own_client()
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        conn.pgconn.prepare(b"next", NEXT)
        done = NO_JOB
        while found := conn.pgconn.exec_prepared(b"next", [done]).get_value(0, 0):
            convert(found.decode())
            done = found


if __name__ == "__main__":
    run_and_stay(int(sys.argv[1]), work)
