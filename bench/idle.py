"""What idle workers cost: claims for one new job among eight hosts, and CPU while a session holds a snapshot.

    python -m bench.idle [hosts] [snapshot]     # BENCH_PROCESSED=400000 BENCH_SUBMISSIONS=300

The hosts are real supervisors. Under the snapshot, many jobs have been processed since it was taken: each has left dead
entries in the indexes that claims and reclaims read. Beside it the same pool runs on a database without a snapshot, and
new jobs are handed to both in turns.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from uuid import UUID

import psycopg

from bench.contender import Place
from bench.contenders import Convertq
from bench.documents import lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds
from bench.report import Row, at_most, table
from bench.round import place_for, working

HOSTS, WORKERS_OF_A_HOST = 8, 2
WORKERS = 16
JOBS_ONE_BY_ONE = 20
PROCESSED = int(os.environ.get("BENCH_PROCESSED", "400000"))
SUBMISSIONS = int(os.environ.get("BENCH_SUBMISSIONS", "300")) // 3
SETTLE_SECONDS = 10.0  # what follows the start of a pool is over
IDLE_SECONDS = 30.0
PAUSE_SECONDS = 0.05, 0.15
DONE_WITHIN_SECONDS = 20.0
SELDOM = {"WORKER_POLL_INTERVAL_MS": "600000"}  # only what a job causes is counted

QUEUE_MANY = """
INSERT INTO jobs (bytes, sha256, status, created_at, queued_at)
SELECT 1, lpad(to_hex(n), 64, '0'), 'queued', now() - interval '1 hour' + n * interval '1 ms', now()
  FROM generate_series(1, {jobs}) AS n
"""
CLAIM_ALL = """
UPDATE jobs SET status = 'processing', leased_by = 'bench:1:0/1', lease_expires_at = now() + interval '1 h',
       attempt_count = 1 WHERE status = 'queued'
"""
COMPLETE_ALL = """
UPDATE jobs SET status = 'complete', completed_at = now(), leased_by = NULL, lease_expires_at = NULL
 WHERE status = 'processing'
"""
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'convertq:%'"


def claims_of_idle_hosts(postgres: DurablePostgres, gateway: Gateway) -> Row:
    """From the server's log: every claim between the submission of a job and half a second after its result."""
    gateway.reset()
    with ExitStack() as up:
        place = up.enter_context(place_for(Convertq(), postgres, gateway))
        log_statements(place)
        for _ in range(HOSTS):
            up.enter_context(working(Convertq(), place, WORKERS_OF_A_HOST, **SELDOM))
        wait_for_sessions(place, HOSTS * (WORKERS_OF_A_HOST + 1))
        time.sleep(SETTLE_SECONDS)
        submit, counts = up.enter_context(Convertq().submitting(place)), []
        for number, job_id in enumerate(lay_out(place.uploads, JOBS_ONE_BY_ONE), 1):
            before = postgres.log.stat().st_size
            submit(job_id)
            gateway.wait_for(number, DONE_WITHIN_SECONDS)
            time.sleep(0.5)
            counts.append(claims_since(postgres, before))
    measure = f"claims for one new job, {HOSTS} idle hosts with {WORKERS_OF_A_HOST} workers each"
    return at_most(measure, 2, max(counts), "", f"the most of {len(counts)} jobs; {median(counts):g} usually")


def log_statements(place: Place) -> None:
    with psycopg.connect(place.database_url, autocommit=True) as conn:
        conn.execute(
            "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET log_statement = ''all''', current_database()); END$$"
        )


def claims_since(postgres: DurablePostgres, before: int) -> int:
    """By their parameters: unlike the claim that a completion takes along, they complete nothing."""
    with open(postgres.log, "rb") as log:
        log.seek(before)
        return len(re.findall(rb"DETAIL: .*= '\[\]'", log.read()))


def backends(place: Place) -> list[int]:
    with psycopg.connect(place.database_url, autocommit=True) as conn:
        return [pid for (pid,) in conn.execute(BACKENDS).fetchall()]


def wait_for_sessions(place: Place, sessions: int) -> None:
    deadline = time.monotonic() + 60
    while len(backends(place)) < sessions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {sessions} sessions within a minute")
        time.sleep(0.1)


@contextmanager
def after_many_jobs(place: Place, *, held: bool) -> Iterator[None]:
    """With a snapshot that was taken before the jobs were processed, or without one."""
    with ExitStack() as up:
        with psycopg.connect(place.database_url, autocommit=True) as conn:
            conn.execute("SET session_replication_role = replica")  # without events
            conn.execute(QUEUE_MANY.format(jobs=PROCESSED).encode())
            if held:
                reader = up.enter_context(psycopg.connect(place.database_url))
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reader.execute("SELECT count(*) FROM jobs")
            conn.execute(CLAIM_ALL)
            conn.execute(COMPLETE_ALL)
            conn.execute("VACUUM ANALYZE jobs")
        yield


def under_a_snapshot(postgres: DurablePostgres, gateway: Gateway) -> list[Row]:
    gateway.reset()
    with ExitStack() as up:
        pools: dict[str, tuple[Place, int]] = {}
        for name in ("held", "free"):
            place = up.enter_context(place_for(NamedConvertq(name), postgres, gateway))
            up.enter_context(after_many_jobs(place, held=name == "held"))
            (supervisor,) = up.enter_context(working(Convertq(), place, WORKERS))
            wait_for_sessions(place, WORKERS + 1)
            pools[name] = place, supervisor
        postgres.settle()
        time.sleep(SETTLE_SECONDS)
        cpu = {name: idle_cpu(*pool) for name, pool in pools.items()}
        times = pick_up_times(gateway, {name: place for name, (place, _) in pools.items()})
    shown = {name: f"{median(of):.1f} ms" for name, of in times.items()}
    return [
        at_most(
            f"CPU of {WORKERS} idle workers and their sessions, snapshot held over {PROCESSED:,} jobs", 5,
            100 * cpu["held"], " % of a core", f"{100 * cpu['free']:.1f} % without a snapshot",
        ),
        at_most(
            "submit → gateway request, idle pool, the same snapshot: p50 against without", 2,
            median(times["held"]) / median(times["free"]), "×", f"{shown['held']} and {shown['free']}",
        ),
    ]  # fmt: skip


class NamedConvertq(Convertq):
    """Two databases at the same time."""

    def __init__(self, name: str) -> None:
        self.name = f"convertq {name}"


def idle_cpu(place: Place, supervisor: int) -> float:
    """The share of a core: the supervisor, its workers, and the server's processes that serve them."""
    roots = [supervisor, *backends(place)]
    before, began = cpu_seconds(*roots), time.monotonic()
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(*roots) - before) / (time.monotonic() - began)


def pick_up_times(gateway: Gateway, places: dict[str, Place]) -> dict[str, list[float]]:
    """Milliseconds from just before a submission to the arrival of its request at the gateway."""
    submitted: dict[UUID, tuple[str, float]] = {}
    with ExitStack() as up:
        submits = {name: up.enter_context(Convertq().submitting(place)) for name, place in places.items()}
        ids = {name: lay_out(place.uploads, SUBMISSIONS) for name, place in places.items()}
        for number in range(SUBMISSIONS):
            for name in random.sample(list(places), len(places)):
                job_id = ids[name][number]
                submitted[job_id] = name, submits[name](job_id)
                time.sleep(random.uniform(*PAUSE_SECONDS))
        gateway.wait_for(len(submitted), DONE_WITHIN_SECONDS)
    times: dict[str, list[float]] = {name: [] for name in places}
    for seen in gateway.seen():
        name, before = submitted[UUID(seen.job_id)]
        times[name].append(1000 * (seen.at - before))
    return times


def rows(postgres: DurablePostgres, gateway: Gateway) -> list[Row]:
    return [claims_of_idle_hosts(postgres, gateway), *under_a_snapshot(postgres, gateway)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "scenes", nargs="*", choices=["hosts", "snapshot", []], help="hosts, snapshot; both if none is named"
    )
    asked = parser.parse_args().scenes or ["hosts", "snapshot"]
    with DurablePostgres() as postgres, null_gateway() as gateway:
        found = [claims_of_idle_hosts(postgres, gateway)] if "hosts" in asked else []
        found += under_a_snapshot(postgres, gateway) if "snapshot" in asked else []
    print(table(found))


if __name__ == "__main__":
    main()
