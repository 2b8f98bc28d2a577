"""What wake-ups cost those who submit: sixteen writers whose commits take 3 ms, with hosts that wait and with none.

    python -m bench.submissions            # BENCH_SUBMIT_SECONDS=2 BENCH_ROUNDS=5

`commit_delay = 3000` makes each commit as slow as on a server with a slow disk or a synchronous standby; many commits
that come together share it. A NOTIFY would make them come one by one. The hosts that wait have no workers: every job
stays in the queue, so the writers are compared with nothing but the wake-ups. `without` is the same database with the
wake-up's trigger disabled.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection

import psycopg
from convertq.queue.config import Config, read_config
from convertq.queue.database.connection import connect
from convertq.queue.database.migrations import migrate

from bench.postgres import DurablePostgres
from bench.report import Row, ratio_at_least, table

WRITERS = 16
SECONDS = float(os.environ.get("BENCH_SUBMIT_SECONDS", "2"))
ROUNDS = 2 * int(os.environ.get("BENCH_ROUNDS", "5")) + 1  # short and many: the machine may do other things
SCENES = {"without": 0, "nobody waits": 0, "one host waits": 1, "eight hosts wait": 8}
SUBMIT = "INSERT INTO jobs (bytes, sha256, status) VALUES (1, md5(random()::text) || md5(random()::text), 'queued')"
SLOW_COMMITS = (
    "ALTER SYSTEM SET commit_delay = 3000",
    "ALTER SYSTEM SET commit_siblings = 1",
    "SELECT pg_reload_conf()",
)
USUAL_COMMITS = ("ALTER SYSTEM RESET commit_delay", "ALTER SYSTEM RESET commit_siblings", "SELECT pg_reload_conf()")


def submit(url: str, begin: float, tell: Connection) -> None:
    count = 0
    with psycopg.connect(url, autocommit=True, prepare_threshold=1) as conn:
        conn.execute(SUBMIT)
        time.sleep(max(0.0, begin - time.monotonic()))
        while time.monotonic() < begin + SECONDS:
            conn.execute(SUBMIT)
            count += 1
    tell.send(count)


def rate(url: str, hosts: int) -> float:
    """Submissions a second of all writers together, while so many hosts wait."""
    fork = multiprocessing.get_context("fork")
    with ExitStack() as waiting:
        for _ in range(hosts):
            waiting.enter_context(psycopg.connect(url, autocommit=True)).execute("SELECT start_waiting()")
        begin, told = time.monotonic() + 1, []
        for _ in range(WRITERS):
            hear, tell = fork.Pipe(duplex=False)
            fork.Process(target=submit, args=(url, begin, tell), daemon=True).start()
            told.append(hear)
        return float(sum(hear.recv() for hear in told) / SECONDS)


def in_each_scene(config: Config, url: str) -> dict[str, float]:
    with connect(config.database, "bench") as connection:
        migrate(connection, config.database.schema)
    found = {}
    for scene, hosts in random.sample(list(SCENES.items()), len(SCENES)):
        run(url, f"ALTER TABLE job_events {'DISABLE' if scene == 'without' else 'ENABLE'} TRIGGER announce_jobs")
        found[scene] = rate(url, hosts)
    return found


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def rows(postgres: DurablePostgres) -> list[Row]:
    run(postgres.url(), *SLOW_COMMITS)
    rates: dict[str, list[float]] = {scene: [] for scene in SCENES}
    for number in range(1, ROUNDS + 1):
        with postgres.database("submissions") as url:
            for scene, found in in_each_scene(read_config({"DATABASE_URL": url}), url).items():
                rates[scene].append(found)
                print(f"round {number}: {scene:<16} {found:6.0f} submissions/s", flush=True)
    run(postgres.url(), *USUAL_COMMITS)
    without = rates.pop("without")
    return [
        ratio_at_least(
            f"submissions of {WRITERS} writers with commits of 3 ms, {scene}, against without wake-ups",
            0.9, found, without, "a second",
        )
        for scene, found in rates.items()
    ]  # fmt: skip


def main() -> None:
    with DurablePostgres() as postgres:
        print(table(rows(postgres)))


if __name__ == "__main__":
    main()
