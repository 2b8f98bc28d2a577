"""A long history must cost nothing: claim, complete, submit, `list` and `stats` on many events against none.

    python -m bench.big_history     # BENCH_HISTORY_JOBS=200000 BENCH_HISTORY_EVENTS=1000000

The events are spread over a year, as many for each terminal job, and a new partition is begun every 15 days, as
supervisors do. Both databases take turns. Then retention removes the oldest month of events. The full size,
BENCH_HISTORY_JOBS=10000000 BENCH_HISTORY_EVENTS=100000000, takes about an hour.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TypeVar
from uuid import uuid4

import psycopg
from convertq.queue import jobs
from convertq.queue.breaker import Breaker
from convertq.queue.claim import ClaimCursor
from convertq.queue.completion import FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed
from convertq.queue.retention import Retention
from convertq.queue.stats import get_stats
from convertq.queue.store import open_store

from bench.big_table import SERVER, Rows, big_table, loading
from bench.many_jobs import AGGREGATE
from bench.postgres import DurablePostgres
from bench.report import Row, at_most, ratio_at_most, table

JOBS = int(os.environ.get("BENCH_HISTORY_JOBS", "200000"))
EVENTS = int(os.environ.get("BENCH_HISTORY_EVENTS", "1000000"))
KINDS = (
    "created",
    "queued",
    "processing",
    "complete",
    "downloaded",
)  # a job with more events was downloaded more often
TURNS, TIMES = 20, 25
Result = TypeVar("Result")
KEPT_DAYS = 335  # of a year: the oldest month goes
LONGEST_RETENTION_SECONDS = 60.0

DAYS_OF_A_PARTITION, DAYS_OF_A_YEAR = 15, 365
#: one INSERT for each part, so that no transaction writes all of it
PART = 1_000_000
HISTORY = """
INSERT INTO job_events (job_id, event_type, at, meta, xact_id)
SELECT lpad(to_hex(1 + n / %(each)s), 32, '0')::uuid,
       (%(kinds)s::text[])[1 + least(n %% %(each)s, %(last)s)],
       now() - interval '1 year' + n::float8 / %(events)s * interval '1 year',
       CASE n %% %(each)s WHEN 3 THEN '{"worker": "host:1:a/1", "attempt": 1, "gateway_ok": true}'::jsonb ELSE '{}' END,
       '0'
  FROM generate_series(%(first)s::bigint, %(upto)s::bigint) AS n
"""


def spans(events: int) -> Iterator[tuple[int, int]]:
    """The first event of each partition, and of the next one."""
    size = -(-events * DAYS_OF_A_PARTITION // DAYS_OF_A_YEAR)
    return ((first, min(first + size, events)) for first in range(0, events, size))


def begin_partition(conn: psycopg.Connection) -> None:
    """As a supervisor does after 15 days."""
    conn.execute("UPDATE event_pace SET begun_at = begun_at - interval '15 days'")
    while conn.execute("SELECT make_event_partition(3)").fetchall() != [("enough",)]:
        pass


def fill_history(config: Config, jobs: int, events: int) -> None:
    """Around the triggers and the foreign key: every job that is named is there."""
    each, began = max(1, events // jobs), time.monotonic()
    with psycopg.connect(config.database.conninfo, autocommit=True) as conn:
        with loading(conn, "job_events"):
            for begin, end in spans(jobs * each):
                begin_partition(conn)
                for first in range(begin, end, PART):
                    part = {"events": jobs * each, "first": first, "upto": min(first + PART, end) - 1}
                    conn.execute(HISTORY, {**part, "each": each, "last": len(KINDS) - 1, "kinds": list(KINDS)})
        for statement in AGGREGATE.strip().split(";\n"):
            conn.execute(statement.encode())
        conn.execute("UPDATE counters_position SET floor_id = event_id")  # supervisors have aggregated it long ago
        conn.execute("VACUUM ANALYZE")
        conn.execute("CHECKPOINT")
    print(f"{jobs * each:,} events: loaded in {time.monotonic() - began:.0f} s", flush=True)


class Client:
    """One connection, and how long each of its actions took, by turn."""

    def __init__(self, config: Config) -> None:
        self._config, self._database = config, Database.open(config.database, "bench", claims=True)
        self._queue, self._cursor = JobQueue(self._database, config), ClaimCursor(self._database, config)
        self._breaker = Breaker(config, Log(config))
        self.turns: dict[str, list[float]] = {}

    def _complete(self, finished: FinishedJob) -> None:
        with self._queue.completing([finished], self._breaker) as completion:
            assert completion.leased

    def turn(self, *, counts: bool) -> None:
        times: dict[str, list[float]] = {}
        for _ in range(TIMES):
            job = timed(times, "claim", lambda: self._cursor.claim_job(SERVER, f"{SERVER}/1")).job
            assert job
            timed(times, "complete", partial(self._complete, FinishedJob(job, Completed("bench"))))
            timed(times, "submit", self._submit)
            timed(times, "list", lambda: jobs.list_jobs(self._database, status=None, owner=None, code=None, limit=50))
            timed(times, "stats", lambda: get_stats(self._database, self._config))
        for name, found in times.items() if counts else ():
            self.turns.setdefault(name, []).append(median(found))

    def _submit(self) -> None:
        name = uuid4()
        self._database.run(
            "submit_job", id=name, owner="bench", original_filename="invoice.pdf", bytes=20_000, sha256=name.hex * 2,
            mapping="pt_simon_invoice_v1", pretty=True, priority=0, status="queued", upload_path=f"/uploads/{name}.pdf",
            not_before=None, deadline=None,
        )  # fmt: skip


def timed(times: dict[str, list[float]], name: str, action: Callable[[], Result]) -> Result:
    before = time.perf_counter()
    result = action()
    times.setdefault(name, []).append((time.perf_counter() - before) * 1000)
    return result


def rows(postgres: DurablePostgres, number_of_jobs: int = JOBS, events: int = EVENTS) -> list[Row]:
    with ExitStack() as loaded:
        queued = 2 * TIMES
        full = loaded.enter_context(big_table(postgres, "history", Rows(queued, number_of_jobs)))
        empty = loaded.enter_context(big_table(postgres, "no_history", Rows(queued)))
        fill_history(full, number_of_jobs, events)
        clients = Client(full), Client(empty)
        for turn in range(1 + TURNS):
            for client in clients:
                client.turn(counts=turn > 0)  # from the second one on caches and plans are as after a while
        beside = f"{number_of_jobs:,} terminal jobs and {events:,} events, against none"
        found = [
            ratio_at_most(f"{name} p50, {beside}", 1.2, with_history, clients[1].turns[name], "ms")
            for name, with_history in clients[0].turns.items()
        ]
        return [*found, retention_of_a_month(full)]


def retention_of_a_month(config: Config) -> Row:
    limited = replace(config, retention_events_days=KEPT_DAYS)
    database = Database.open(limited.database, "bench")
    began = time.monotonic()
    removed = Counter[bool]()
    for each in Retention(database, open_store(limited), limited).remove_events():
        removed[each.count > 1] += each.count
    seconds = time.monotonic() - began
    how = f"{removed[True]:,} removed with their partition, {removed[False]:,} one by one"
    return at_most("retention of a month of events", LONGEST_RETENTION_SECONDS, seconds, " s", how)


def scene(postgres: DurablePostgres) -> str:
    return table(rows(postgres))


if __name__ == "__main__":
    with DurablePostgres() as server:
        print(scene(server))
