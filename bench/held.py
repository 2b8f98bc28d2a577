"""What claims cost beside many queued jobs that may not run and would all be first: their p50 with them and without.

    python -m bench.held                   # BENCH_HELD_JOBS=300000

The jobs are of a gateway whose breaker is open, which is paused, or which is at its limit; or their owner is paused,
and they are of the gateway that the claims are from. Both databases are in the same state, and take turns. No
supervisor runs, so the jobs of the owner stay in the claim's index as a pause through the web leaves them, until the
rest is moved. At the end of each state, the next claim must get one of the jobs.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median

import psycopg
from convertq.queue.breaker import Breaker
from convertq.queue.breaker_state import move_breakers
from convertq.queue.completion import FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.gateway import DEFAULT_GATEWAY, Gateway
from convertq.queue.job import ClaimedJob
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed
from convertq.queue.pauses import Scope, end_pauses, move_paused_jobs, move_resumed_jobs, start_pause
from convertq.queue.queue_events import Operator
from convertq.queue.route_cursor import RouteCursor
from convertq.queue.routing import Routing
from convertq.queue.scan_budget import ScanBudget

from bench.big_table import SERVER, Rows, big_table, loading
from bench.postgres import DurablePostgres
from bench.report import Row, ratio_at_most, table

JOBS = int(os.environ.get("BENCH_HELD_JOBS", "300000"))
WARM_UP, ROUNDS, CLAIMS = 50, 15, 50  # claims before the clock; rounds; claims in each
STATES = 3  # at most, of one database: there are enough jobs for the claims of each
FIRST_PART_SECONDS = 1.0  # so long does a request of the web move jobs of an owner; a supervisor moves the rest
GATEWAYS = (
    Gateway(DEFAULT_GATEWAY, "http://127.0.0.1", ("pt_simon_invoice_v1",)),
    Gateway("held", "http://127.0.0.1", ("held",)),
)
OWNER = Scope(owner="held")
OPERATOR = Operator("bench")
OTHER_WORKER = f"{SERVER}/2"

HELD_BYTES = 5  # by its size a held job is known
HELD = """
INSERT INTO jobs (bytes, sha256, status, priority, created_at, queued_at, owner_session_id, mapping, route)
SELECT %(bytes)s, lpad(to_hex(n), 64, '0'), 'queued', 1, at, at, 'held', %(mapping)s, %(route)s
  FROM (SELECT n, now() - interval '1 day' + n * interval '1 ms' AS at
          FROM generate_series(1, %(jobs)s) AS n) AS made
"""


class Worker:
    """The claims of one worker from both gateways. Each job is completed before the next one is claimed."""

    def __init__(self, config: Config) -> None:
        self._database = Database.open(config.database, "bench", claims=True)
        self._queue, self._breaker = JobQueue(self._database, config), Breaker(config, Log(config))
        scans = {name: ScanBudget() for name in config.gateway_names}
        self._cursor = RouteCursor(self._database, config, scans, lambda gateway: False, lambda gateway: None)

    def claim(self) -> ClaimedJob:
        job = self._cursor.claim_job(SERVER, f"{SERVER}/1").job
        assert job is not None
        return job

    def complete(self, job: ClaimedJob) -> None:
        with self._queue.completing([FinishedJob(job, Completed("bench"))], self._breaker) as completion:
            assert completion.leased

    def measure(self) -> float:
        """Milliseconds of one claim."""
        before = time.perf_counter()
        job = self.claim()
        milliseconds = (time.perf_counter() - before) * 1000
        assert job.bytes != HELD_BYTES
        self.complete(job)
        return milliseconds

    def claim_held(self) -> None:
        job = self.claim()
        assert job.bytes == HELD_BYTES
        self.complete(job)

    def close(self) -> None:
        self._cursor.release_slot()
        self._database.close()


def take_turns(workers: Sequence[Worker], claims: int) -> list[tuple[float, ...]]:
    """The times of each worker. After every claim it is the other's turn, so that both meet the same disturbances."""
    return list(zip(*([worker.measure() for worker in workers] for _ in range(claims)), strict=True))


class Pair:
    """A database with the jobs that may not run, and the same without them."""

    def __init__(self, configs: Sequence[Config], jobs: int) -> None:
        self.configs, self.jobs = configs, jobs
        self.databases = [Database.open(config.database, "bench") for config in configs]

    def set(self, change: Callable[[Database], object]) -> None:
        for database in self.databases:
            change(database)

    def compare(self, state: str) -> Row:
        with self._workers() as workers:
            take_turns(workers, WARM_UP)
            rounds = [[median(times) for times in take_turns(workers, CLAIMS)] for _ in range(ROUNDS)]
        measure = f"claim p50 beside {self.jobs:,} jobs {state}, against without them"
        beside, without = zip(*rounds, strict=True)
        return ratio_at_most(measure, 1.1, beside, without, "ms")

    def claim_held(self) -> None:
        with self._workers() as workers:
            workers[0].claim_held()

    @contextmanager
    def _workers(self) -> Iterator[list[Worker]]:
        workers = [Worker(config) for config in self.configs]
        yield workers
        for worker in workers:
            worker.close()


@contextmanager
def pair(postgres: DurablePostgres, jobs: int, gateway: Gateway) -> Iterator[Pair]:
    """The jobs are of this gateway, and of the owner `held`."""
    with ExitStack() as loaded:
        queued = Rows(queued=STATES * (WARM_UP + ROUNDS * CLAIMS + 1))
        plain = [loaded.enter_context(big_table(postgres, name, queued)) for name in ("beside_held", "without_held")]
        made = Pair([replace(config, gateways_file=GATEWAYS) for config in plain], jobs)
        made.set(lambda database: declare(database, GATEWAYS))
        fill(made.configs[0], jobs, gateway)
        yield made
        made.set(Database.close)


def fill(config: Config, jobs: int, gateway: Gateway) -> None:
    with psycopg.connect(config.database.conninfo, autocommit=True) as conn:
        with loading(conn, "jobs"):
            values = {"bytes": HELD_BYTES, "jobs": jobs, "mapping": gateway.mappings[0], "route": gateway.name}
            conn.execute(HELD, values)
        conn.execute("SELECT recount_jobs()")
        conn.execute("VACUUM ANALYZE")
        conn.execute("CHECKPOINT")


def declare(database: Database, gateways: Sequence[Gateway]) -> None:
    declared = json.dumps([gateway.declared for gateway in gateways])
    database.connection.execute("UPDATE servers SET gateways = %s WHERE id = %s", [declared, SERVER])
    Routing().keep_up(database)


def rows_of_gateways(postgres: DurablePostgres, jobs: int) -> list[Row]:
    with pair(postgres, jobs, GATEWAYS[1]) as made:
        return [
            compare_held(made, *state)
            for state in (
                ("of a gateway whose breaker is open", open_breaker, close_breaker),
                ("of a paused gateway", pause_gateway, resume_gateway),
                ("of a gateway at its limit", take_slot, release_slot),
            )
        ]


def compare_held(
    made: Pair, state: str, hold: Callable[[Database], object], release: Callable[[Database], object]
) -> Row:
    made.set(hold)
    row = made.compare(state)
    made.set(release)
    made.claim_held()
    return row


def open_breaker(database: Database) -> None:
    move_breakers(database, "open", ["held"], OPERATOR)


def close_breaker(database: Database) -> None:
    move_breakers(database, "close", ["held"], OPERATOR)


def pause_gateway(database: Database) -> None:
    start_pause(database, Scope(gateway="held"), OPERATOR)


def resume_gateway(database: Database) -> None:
    end_pauses(database, Scope(gateway="held"), OPERATOR)


def take_slot(database: Database) -> None:
    """The only one, for a worker that keeps it."""
    declare(database, [GATEWAYS[0], replace(GATEWAYS[1], max_calls=1)])
    assert database.one("take_slot", gateway="held", holder=OTHER_WORKER, server=SERVER)


def release_slot(database: Database) -> None:
    database.run("release_slots", holder=OTHER_WORKER)


def rows_of_owner(postgres: DurablePostgres, jobs: int) -> list[Row]:
    with pair(postgres, jobs, GATEWAYS[0]) as made:
        first = timed(lambda: made.set(pause_owner))
        at_once = made.compare(f"of a paused owner, {FIRST_PART_SECONDS:g} s after the pause began")
        rest = timed(lambda: made.set(lambda database: move_paused_jobs(database, math.inf)))
        afterwards = made.compare("of a paused owner, after all were moved")
        resumed = timed(lambda: made.set(resume_owner))
        made.claim_held()
    parts = f"{first:.1f} s until it was in force and the web has answered, {rest:.1f} s for the rest"
    return [
        at_once,
        afterwards,
        Row(f"pause of an owner with {jobs:,} queued jobs", "", f"{first + rest:.1f} s ({parts})", None),
        Row(f"resume of an owner with {jobs:,} paused jobs", "", f"{resumed:.1f} s", None),
    ]


def pause_owner(database: Database) -> None:
    start_pause(database, OWNER, OPERATOR)
    move_paused_jobs(database, FIRST_PART_SECONDS)


def resume_owner(database: Database) -> None:
    end_pauses(database, OWNER, OPERATOR)
    move_resumed_jobs(database, math.inf)


def timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def rows(postgres: DurablePostgres, jobs: int = JOBS) -> list[Row]:
    return [*rows_of_gateways(postgres, jobs), *rows_of_owner(postgres, jobs)]


def main() -> None:
    with DurablePostgres() as postgres:
        print(table(rows(postgres)))


if __name__ == "__main__":
    main()
