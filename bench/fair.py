"""Fair share: one owner has 100,000 queued jobs, 20 others have five each, and eight workers convert them.

    python -m bench.fair                   # BENCH_FAIR_JOBS=100000 BENCH_FAIR_DONE=12000 BENCH_ROUNDS=5

Rounds with and without FAIR_SHARE take turns. In each, the first jobs are converted and the rest stays queued. How long
an owner waits is read from the events: how many jobs were begun from one of its jobs to the next. One job of each owner
is 21; workers that begin a job at the same moment may exchange their places. Without fair share, the 20 would wait for
the 100,000.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from uuid import UUID

import psycopg
from convertq.queue.config import read_config
from convertq.queue.database.database import Database
from convertq.queue.fair_share import set_fair_share

from bench.contender import Place
from bench.contenders import Convertq
from bench.documents import PDF_BYTES, lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds
from bench.report import Row, at_most, ratio_at_least, ratio_at_most, table
from bench.round import START_WITHIN_SECONDS, place_for, wait_until_done, working

JOBS = int(os.environ.get("BENCH_FAIR_JOBS", "100000"))
DONE = int(os.environ.get("BENCH_FAIR_DONE", "12000"))  # jobs that are converted in a round
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
OWNERS, JOBS_EACH, WORKERS = 20, 5, 8
AHEAD = 500  # jobs with a file beyond those that are counted: workers go on until they are stopped

#: With their files first; the rest has none, and is not reached.
QUEUE = """
INSERT INTO jobs (id, owner_session_id, bytes, sha256, status, created_at)
SELECT coalesce(given.id, gen_random_uuid()), %(owner)s, %(bytes)s, lpad(to_hex(n), 64, '0'), 'queued',
       now() - %(age)s * interval '1 hour' + n * interval '1 ms'
  FROM generate_series(1, %(jobs)s) AS n
  LEFT JOIN unnest(%(ids)s::uuid[]) WITH ORDINALITY AS given (id, place) ON place = n
 ORDER BY n
"""
BEGUN = """
SELECT job.owner_session_id FROM job_events AS event JOIN jobs AS job ON job.id = event.job_id
 WHERE event.event_type = 'processing' ORDER BY event.id
"""


@dataclass(frozen=True)
class Round:
    rate: float  # jobs a second
    queued_rate: float  # jobs a second, while they were queued by one statement for each owner
    longest_turn: int  # jobs that were begun from one of an owner's to the next, at most; of the 20 owners
    unserved: int  # jobs of the 20 that were not begun
    worker_cpu: float  # ms a job
    postgres_cpu: float

    @property
    def cpu(self) -> float:
        return self.worker_cpu + self.postgres_cpu


def queue_jobs(conn: psycopg.Connection, owner: str, ids: Sequence[UUID], jobs: int, age: int = 0) -> None:
    """`age`: hours ago."""
    conn.execute(QUEUE, {"owner": owner, "bytes": PDF_BYTES, "ids": list(ids), "jobs": jobs, "age": age})


def run_round(postgres: DurablePostgres, gateway: Gateway, *, fair: bool, jobs: int, done: int) -> Round:
    setting = {"FAIR_SHARE": str(int(fair))}
    with place_for(Convertq(), postgres, gateway) as place:
        set_sharing(place, setting)
        ids, few = lay_out(place.uploads, done + AHEAD), lay_out(place.uploads, OWNERS * JOBS_EACH)
        began = time.monotonic()
        with psycopg.connect(place.database_url, autocommit=True) as conn:
            queue_jobs(conn, "many", ids, max(jobs, len(ids)), age=1)
            for number in range(OWNERS):
                queue_jobs(conn, f"owner {number}", few[number * JOBS_EACH : (number + 1) * JOBS_EACH], JOBS_EACH)
            queued_rate = (max(jobs, len(ids)) + len(few)) / (time.monotonic() - began)
            conn.execute("VACUUM ANALYZE jobs")
        postgres.settle()
        gateway.reset(hold=True)
        with working(Convertq(), place, WORKERS, **setting) as pids:
            gateway.wait_for(WORKERS, START_WITHIN_SECONDS)
            assert postgres.pid
            measured = pids, [postgres.pid]
            before = [cpu_seconds(*roots) for roots in measured]
            began = gateway.open()
            ended = wait_until_done(Convertq(), place, gateway, done)
            spent = [1000 * (cpu_seconds(*roots) - then) / done for roots, then in zip(measured, before, strict=True)]
        with psycopg.connect(place.database_url) as conn:
            owners = [row[0] for row in conn.execute(BEGUN)]
    served = [turns_of(owners, f"owner {number}") for number in range(OWNERS)]
    unserved = OWNERS * JOBS_EACH - sum(map(len, served))
    longest = max((turn for turns in served for turn in turns), default=0)
    return Round(done / (ended - began), queued_rate, longest, unserved, *spent)


def set_sharing(place: Place, setting: dict[str, str]) -> None:
    config = read_config(place.environment(**setting))
    database = Database.open(config.database, "bench")
    set_fair_share(database, config)
    database.close()


def turns_of(owners: Sequence[str], owner: str) -> list[int]:
    """How many jobs were begun from one of the owner's jobs to its next, and before its first one."""
    places = [place for place, each in enumerate(owners, start=1) if each == owner]
    return [place - before for place, before in zip(places, [0, *places], strict=False)]


def rows(postgres: DurablePostgres, gateway: Gateway, jobs: int = JOBS, done: int = DONE) -> list[Row]:
    rounds: dict[bool, list[Round]] = {False: [], True: []}
    for number in range(1, ROUNDS + 1):
        for fair, results in rounds.items():
            one = run_round(postgres, gateway, fair=fair, jobs=jobs, done=done)
            results.append(one)
            print(f"round {number}: FAIR_SHARE={int(fair)} {one.rate:7.0f} jobs/s, {one}", flush=True)
    with_turns, without = rounds[True], rounds[False]
    longest, owners = max(one.longest_turn for one in with_turns), f"{OWNERS} owners with {JOBS_EACH} jobs"
    measure = f"jobs begun from one of an owner's to its next, at most; {owners} beside one with {jobs:,}"
    queued = [f"{median(one.queued_rate for one in each):,.0f}" for each in (with_turns, without)]
    return [
        at_most(measure, OWNERS + 1, longest, "", f"without fair share {_unserved(without)} were not begun"),
        at_most(f"jobs of the {OWNERS} owners that were not begun", 0, max(one.unserved for one in with_turns)),
        ratio_at_least(
            f"throughput, N = {WORKERS}, with fair share against without it", 0.97,
            [one.rate for one in with_turns], [one.rate for one in without], "jobs/s",
        ),
        ratio_at_most(
            "CPU of worker + PostgreSQL per job, with fair share against without it", 1.03,
            [one.cpu for one in with_turns], [one.cpu for one in without], "ms",
        ),
        Row("jobs queued a second by one statement", "", f"{queued[0]} with fair share, {queued[1]} without", None),
    ]  # fmt: skip


def _unserved(rounds: Sequence[Round]) -> str:
    return f"{max(one.unserved for one in rounds)} of {OWNERS * JOBS_EACH}"


def main() -> None:
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(table(rows(postgres, gateway)))


if __name__ == "__main__":
    main()
