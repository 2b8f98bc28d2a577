"""A fleet on one PostgreSQL: up to 100 hosts with 16 workers each, directly and through PgBouncer.

    python -m bench.fleet       # BENCH_FLEET=4,16,64,400,1600 BENCH_FLEET_SECONDS=6

A simulated worker is a thread with a connection of its own. It completes its job and claims the next one through the
code of the worker, in one commit. Without a call it does nothing else, so that all of them are in the database at the
same time. At half load it waits in between, as for a gateway, so long that all workers together ask for half of the
jobs a second that PgBouncer reached with as many workers without a call. Clients share the processors with the server,
so on a small machine the jobs a second are those of the clients too: the CPU of PostgreSQL per job is not.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import NamedTuple

from convertq.queue.breaker import Breaker
from convertq.queue.claim import ClaimCursor, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.errors import TRANSIENT_ERRORS
from convertq.queue.database.url import parse_database_url
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed

from bench import fleet_wake_up, report
from bench.big_table import SERVER, Rows, big_table
from bench.contender import ROOT
from bench.fleet_picture import picture
from bench.gateway import Gateway, null_gateway
from bench.pgbouncer import PROGRAM, SERVER_CONNECTIONS, pgbouncer
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds

WORKERS = [int(number) for number in os.environ.get("BENCH_FLEET", "4,16,64,400,1600").split(",")]
SECONDS = float(os.environ.get("BENCH_FLEET_SECONDS", "6"))
MOST_PROCESSES = 4  # more than processors only compete for them
JOBS_PER_SECOND = 2000  # more than two cores reach with one job a commit
WARM_UP_JOBS = 1600  # of all workers together before the clock, and at least one of each
READY_WITHIN_SECONDS = 300.0
START_SECONDS = 1.0  # until all threads have begun
PICTURE = ROOT / "docs" / "fleet.svg"
ROUNDS = 3  # of what is compared with a target: other work on the machine decides over a single one
ENOUGH_OF_THE_BEST = 0.8
MOST_MS_AT_HALF_LOAD = 50


class Setup(NamedTuple):
    workers: int
    pooled: bool
    call_seconds: float = 0.0

    @property
    def warm_up(self) -> int:
        """Jobs of each worker before the clock."""
        return max(1, WARM_UP_JOBS // self.workers)


class Measured(NamedTuple):
    rate: float
    p50: float  # of a commit that completes a job and claims the next, in milliseconds
    p99: float
    postgres: float  # its CPU per job, in milliseconds
    clients: float
    pooler: float  # 0: there is none
    failed: float  # statements


Results = dict[Setup, list[Measured]]


class SimulatedWorker:
    """One worker on a connection of its own."""

    def __init__(self, config: Config, slot: int) -> None:
        self._holder = f"{SERVER}/{slot}"
        self._database = Database.open(config.database, f"bench/{slot}", claims=True)
        self._queue, self._cursor = JobQueue(self._database, config), ClaimCursor(self._database, config)
        self._breaker = Breaker(config, Log(config, SERVER, self._holder))
        self._next_claim = NextClaim(self._cursor, SERVER, self._holder, 1)
        self._jobs = self._cursor.claim_job(SERVER, self._holder).jobs
        self.commits: list[tuple[float, float]] = []  # when each ended, and how long it took, in seconds

        self.failed = 0  # statements, at a time limit

    def complete_and_claim(self) -> None:
        assert self._jobs, "the queue is empty"
        finished, began = [FinishedJob(job, Completed("bench")) for job in self._jobs], time.monotonic()
        try:
            with self._queue.completing(finished, self._breaker, self._next_claim) as completion:
                assert completion.leased
        except TRANSIENT_ERRORS:
            self.failed += 1
            return
        ended = time.monotonic()
        self.commits.append((ended, ended - began))
        self._jobs = completion.claim.jobs if completion.claim else []
        if not self._jobs:  # others have claimed what it saw
            self._jobs = self._cursor.claim_job(SERVER, self._holder).jobs

    def run(self, setup: Setup, warm: threading.Barrier, end: list[float]) -> None:
        for _ in range(setup.warm_up):
            self.complete_and_claim()
        warm.wait()
        self.failed = 0
        if setup.call_seconds:
            time.sleep(random.uniform(0, setup.call_seconds))
        while time.monotonic() < end[0]:
            self.complete_and_claim()
            time.sleep(max(0.0, min(setup.call_seconds, end[0] - time.monotonic())))


def run_process(config: Config, slots: range, setup: Setup, control: Connection) -> None:
    """Reports when all its workers are warm, receives the beginning and the end of the time, and sends durations."""
    end, warm = [0.0], threading.Barrier(len(slots) + 1)
    threading.stack_size(256 * 1024)
    workers = [SimulatedWorker(config, slot) for slot in slots]
    threads = [threading.Thread(target=worker.run, args=(setup, warm, end), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    while warm.n_waiting < len(slots):
        time.sleep(0.05)
    control.send(True)
    begin, end[0] = control.recv()
    warm.wait()
    for thread in threads:
        thread.join()
    took = [seconds for each in workers for ended, seconds in each.commits if begin <= ended < end[0]]
    control.send((took, sum(each.failed for each in workers)))
    control.recv()  # its connections stay open until the CPU of the server's processes has been read


@contextmanager
def address(config: Config, server_port: int, *, pooled: bool) -> Iterator[tuple[Config, int | None]]:
    """The configuration with this way to the database, and the pooler's pid."""
    if not pooled:
        yield config, None
        return
    with pgbouncer(server_port) as pooler:
        conninfo = config.database.conninfo.replace(f":{server_port}/", f":{pooler.port}/", 1)
        yield replace(config, database=parse_database_url(conninfo)), pooler.pid


def measure(postgres: DurablePostgres, setup: Setup) -> Measured:
    fork, workers, count = multiprocessing.get_context("fork"), setup.workers, min(setup.workers, MOST_PROCESSES)
    queued = int(JOBS_PER_SECOND * (SECONDS + START_SECONDS)) + workers * (setup.warm_up + 2)
    with (
        big_table(postgres, "fleet", Rows(queued=queued)) as direct,
        address(direct, postgres.port, pooled=setup.pooled) as (config, pooler),
    ):
        pipes = [fork.Pipe() for _ in range(count)]
        processes = [
            fork.Process(target=run_process, args=(config, range(n, workers, count), setup, theirs), daemon=True)
            for n, (_, theirs) in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        for ours, _ in pipes:
            assert ours.poll(READY_WITHIN_SECONDS), "the workers are not ready"
            ours.recv()
        assert postgres.pid
        clients = [process.pid for process in processes if process.pid]
        measured = [[postgres.pid], clients, [pooler] if pooler else []]
        begin = time.monotonic() + START_SECONDS
        for ours, _ in pipes:
            ours.send((begin, begin + SECONDS))
        before, after = cpu_at(begin, measured), cpu_at(begin + SECONDS, measured)
        spent = [late - early for early, late in zip(before, after, strict=True)]
        found = [ours.recv() for ours, _ in pipes]
        for ours, _ in pipes:
            ours.send(True)
        for process in processes:
            process.join()
    took = [each for durations, _ in found for each in durations]
    percentiles, per_job = quantiles(took, n=100), [1000 * seconds / len(took) for seconds in spent]
    return Measured(
        len(took) / SECONDS, 1000 * percentiles[49], 1000 * percentiles[98], per_job[0], per_job[1], per_job[2],
        sum(failed for _, failed in found),
    )  # fmt: skip


def cpu_at(moment: float, measured: Sequence[Sequence[int]]) -> list[float]:
    time.sleep(max(0.0, moment - time.monotonic()))
    return [cpu_seconds(*pids) for pids in measured]


def measure_all(postgres: DurablePostgres) -> Results:
    """Without calls with each number of workers on each way. Then the largest number through PgBouncer and the best of
    all in turns, and the largest number at half load."""
    results: Results = {}

    def add(setup: Setup) -> None:
        results.setdefault(setup, []).append(measure(postgres, setup))
        print(line(setup, results[setup][-1:]), flush=True)

    for workers in WORKERS:
        for pooled in [False, True] if PROGRAM else [False]:
            add(Setup(workers, pooled))
    if PROGRAM:
        best, most = max(results, key=lambda setup: results[setup][0].rate), Setup(max(WORKERS), pooled=True)
        for setup in [best, most] * (ROUNDS - 1):
            add(setup)
        call_seconds = 2 * most.workers / median(found.rate for found in results[most])
        for pooled in [False, *[True] * ROUNDS]:
            add(Setup(most.workers, pooled, call_seconds))
    return results


def line(setup: Setup, rounds: Sequence[Measured]) -> str:
    """With the medians of its rounds."""
    found = Measured(*map(median, zip(*rounds, strict=True)))
    way = f"PgBouncer, {SERVER_CONNECTIONS} connections" if setup.pooled else f"direct, {setup.workers} connections"
    call = f"{setup.call_seconds:.1f} s" if setup.call_seconds else "none"
    pooler = f"{found.pooler:.2f}" if setup.pooled else ""
    return (
        f"| {setup.workers} | {call} | {way} | {found.rate:.0f} | {found.p50:.1f} | {found.p99:.1f} "
        f"| {found.postgres:.2f} | {pooler} | {found.clients:.2f} | {found.failed:.0f} |"
    )


def rows(results: Results) -> list[report.Row]:
    rates = {setup: [found.rate for found in rounds] for setup, rounds in results.items() if not setup.call_seconds}
    best, most = max(rates, key=lambda setup: rates[setup][0]), Setup(max(WORKERS), pooled=True)
    [half] = [rounds for setup, rounds in results.items() if setup.pooled and setup.call_seconds]
    p99s, name = [found.p99 for found in half], f"{most.workers:,} workers through PgBouncer"
    note = f"{median(found.rate for found in half):.0f} jobs/s; by round {min(p99s):.0f}–{max(p99s):.0f}"
    return [
        report.ratio_at_least(
            f"{name}: jobs/s against the best", ENOUGH_OF_THE_BEST, rates[most], rates[best], "jobs/s"
        ),
        report.at_most(f"{name} at half load: claim p99", MOST_MS_AT_HALF_LOAD, median(p99s), " ms", note),
    ]  # fmt: skip


def scene(gateway: Gateway, machine: str = "", *, keeps: bool = False) -> str:
    with DurablePostgres({"max_connections": str(max(WORKERS) + 50)}) as postgres:
        results = measure_all(postgres)
        bars = [*rows(results), fleet_wake_up.row(postgres, gateway)] if PROGRAM else []
    if keeps:
        busy = {setup: rounds for setup, rounds in results.items() if not setup.call_seconds}
        PICTURE.write_text(
            picture([(*setup[:2], median(found.rate for found in rounds)) for setup, rounds in busy.items()], machine)
        )
    lines = [
        "| workers | call | way | jobs/s | claim p50, ms | p99, ms | CPU ms a job: PostgreSQL | PgBouncer | clients "
        "| failed |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
        *(line(setup, rounds) for setup, rounds in results.items()),
    ]
    return "\n".join([*lines, "", report.table(bars)] if bars else lines)


if __name__ == "__main__":
    with null_gateway() as opened:
        print(scene(opened))
