"""A fleet on one PostgreSQL: up to 100 hosts with 16 workers each, directly and through PgBouncer.

    python -m bench.fleet       # BENCH_FLEET=4,16,64,400,1600 BENCH_FLEET_SECONDS=8

A simulated worker is a thread with a connection of its own. It completes its job and claims the next one through the
code of the worker, in one commit. With "no call" it does nothing else, so that all of them are in the database at the
same time; with calls of a second, it waits that long in between, as for a gateway. Workers of one process share a
processor, so on a small machine the figures at 400 and 1,600 workers are those of the clients too: the CPU of
PostgreSQL per job does not depend on that.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from statistics import quantiles

from convertq.queue.breaker import Breaker
from convertq.queue.claim import ClaimCursor, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed

from bench.big_table import SERVER, Rows, big_table
from bench.pgbouncer import PROGRAM, SERVER_CONNECTIONS, pgbouncer
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds

WORKERS = [int(number) for number in os.environ.get("BENCH_FLEET", "4,16,64,400,1600").split(",")]
SECONDS = float(os.environ.get("BENCH_FLEET_SECONDS", "8"))
MOST_PROCESSES = 16
JOBS_PER_SECOND = 3000  # more than two cores reach with one job a commit
WARM_UP = 3  # jobs of each worker before the clock
READY_WITHIN_SECONDS = 300.0
CALL_SECONDS = 1.0


@dataclass(frozen=True)
class Measured:
    rate: float
    p50: float  # of a commit that completes a job and claims the next, in milliseconds
    p99: float
    postgres: float  # its CPU per job, in milliseconds
    pooler: float | None


class SimulatedWorker:
    """One worker on a connection of its own."""

    def __init__(self, config: Config, slot: int) -> None:
        self._holder = f"{SERVER}/{slot}"
        self._database = Database.open(config.database, f"bench/{slot}", claims=True)
        self._queue, self._cursor = JobQueue(self._database, config), ClaimCursor(self._database, config)
        self._breaker = Breaker(config, Log(config, SERVER, self._holder))
        self._next_claim = NextClaim(self._cursor, SERVER, self._holder, 1)
        self._jobs = self._cursor.claim_job(SERVER, self._holder).jobs
        self.seconds: list[float] = []  # of each commit

    def complete_and_claim(self) -> None:
        assert self._jobs, "the queue is empty"
        finished, began = [FinishedJob(job, Completed("bench")) for job in self._jobs], time.monotonic()
        with self._queue.completing(finished, self._breaker, self._next_claim) as completion:
            assert completion.leased
        self.seconds.append(time.monotonic() - began)
        self._jobs = completion.claim.jobs if completion.claim else []
        if not self._jobs:  # others have claimed what it saw
            self._jobs = self._cursor.claim_job(SERVER, self._holder).jobs

    def run(self, call_seconds: float, warm: threading.Barrier, end: list[float]) -> None:
        for _ in range(WARM_UP):
            self.complete_and_claim()
        self.seconds.clear()
        warm.wait()
        if call_seconds:
            time.sleep(random.uniform(0, call_seconds))
        while time.monotonic() < end[0]:
            self.complete_and_claim()
            time.sleep(max(0.0, min(call_seconds, end[0] - time.monotonic())))
        self._database.close()


def run_process(config: Config, slots: range, call_seconds: float, control: Connection) -> None:
    """Reports when all its workers are warm, begins when it receives the end of the time, and sends durations."""
    end, warm = [0.0], threading.Barrier(len(slots) + 1)
    threading.stack_size(256 * 1024)
    workers = [SimulatedWorker(config, slot) for slot in slots]
    threads = [threading.Thread(target=worker.run, args=(call_seconds, warm, end), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    while warm.n_waiting < len(slots):
        time.sleep(0.05)
    control.send(True)
    end[0] = control.recv()
    warm.wait()
    for thread in threads:
        thread.join()
    control.send([seconds for worker in workers for seconds in worker.seconds])


@contextmanager
def address(config: Config, server_port: int, *, pooled: bool) -> Iterator[tuple[Config, int | None]]:
    """The configuration with this way to the database, and the pooler's pid."""
    if not pooled:
        yield config, None
        return
    with pgbouncer(server_port) as pooler:
        conninfo = config.database.conninfo.replace(f":{server_port}/", f":{pooler.port}/", 1)
        yield replace(config, database=parse_database_url(conninfo)), pooler.pid


def measure(postgres: DurablePostgres, workers: int, *, pooled: bool, call_seconds: float = 0.0) -> Measured:
    fork, count = multiprocessing.get_context("fork"), min(workers, MOST_PROCESSES)
    queued = int(JOBS_PER_SECOND * SECONDS) + workers * (WARM_UP + 2)
    with (
        big_table(postgres, "fleet", Rows(queued=queued)) as direct,
        address(direct, postgres.port, pooled=pooled) as (config, pooler),
    ):
        pipes = [fork.Pipe() for _ in range(count)]
        processes = [
            fork.Process(target=run_process, args=(config, range(n, workers, count), call_seconds, theirs), daemon=True)
            for n, (_, theirs) in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        for ours, _ in pipes:
            assert ours.poll(READY_WITHIN_SECONDS), "the workers are not ready"
            ours.recv()
        assert postgres.pid
        servers = [postgres.pid, *([pooler] if pooler else [])]
        before, began = [cpu_seconds(pid) for pid in servers], time.monotonic()
        for ours, _ in pipes:
            ours.send(began + SECONDS)
        took = [each for ours, _ in pipes for each in ours.recv()]
        seconds = time.monotonic() - began
        spent = [1000 * (cpu_seconds(pid) - of) / len(took) for pid, of in zip(servers, before, strict=True)]
        for process in processes:
            process.join()
    percentiles = quantiles(took, n=100)
    return Measured(
        len(took) / seconds, 1000 * percentiles[49], 1000 * percentiles[98], spent[0], spent[1] if pooler else None
    )  # fmt: skip


def line(workers: int, call_seconds: float, *, pooled: bool, found: Measured) -> str:
    way = f"PgBouncer, {SERVER_CONNECTIONS} connections" if pooled else f"direct, {workers} connections"
    call = f"{call_seconds:g} s" if call_seconds else "none"
    pooler = "" if found.pooler is None else f"{found.pooler:.2f}"
    return (
        f"| {workers} | {call} | {way} | {found.rate:.0f} | {found.p50:.1f} | {found.p99:.1f} | {found.postgres:.2f} "
        f"| {pooler} |"
    )


def scene() -> str:
    lines = [
        "| workers | call | way | jobs/s | commit p50, ms | p99, ms | PostgreSQL, CPU ms a job | PgBouncer |",
        "|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    ways = [False, True] if PROGRAM else [False]
    plan = [(workers, 0.0) for workers in WORKERS] + [(max(WORKERS), CALL_SECONDS)]
    with DurablePostgres({"max_connections": str(max(WORKERS) + 50)}) as postgres:
        for workers, call_seconds in plan:
            for pooled in ways:
                found = measure(postgres, workers, pooled=pooled, call_seconds=call_seconds)
                lines.append(line(workers, call_seconds, pooled=pooled, found=found))
                print(lines[-1], flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    print(scene())
