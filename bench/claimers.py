"""Many claimers: jobs a second and PostgreSQL's CPU per job with 16, 64, 200 and 400 connections.

    python -m bench.claimers        # BENCH_CLAIMERS=16,64,200,400 BENCH_CLAIMERS_SECONDS=8 BENCH_ROUNDS=5

Each connection is a process, as a worker is, and all of them are of one host. It completes its jobs and claims the next
ones through the code of the worker: eight in one commit, as a worker does with quick jobs, or one, as with slow ones;
and for comparison the same without the permits that limit how many workers of a host do this at once. There is no
gateway and no file, so that nothing but the database is measured. The server has its defaults except for
`max_connections`.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median

import psycopg
from convertq.queue.breaker import Breaker
from convertq.queue.claim import ClaimCursor, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobEvents
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed
from convertq.queue.settle import Settlement
from convertq.queue.store import open_store
from convertq.worker.loop.worker_slot import WorkerSlot
from convertq.worker.supervisor.status_table import WorkerStatusTable

from bench.big_table import SERVER, Rows, big_table
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds
from bench.report import Row, at_least, at_most, table

CONNECTIONS = [int(number) for number in os.environ.get("BENCH_CLAIMERS", "16,64,200,400").split(",")]
SECONDS = float(os.environ.get("BENCH_CLAIMERS_SECONDS", "8"))
ROUNDS = max(1, int(os.environ.get("BENCH_ROUNDS", "5")) // 2)
QUEUED = int(4000 * SECONDS)  # more than any machine here claims in that time
WARM_UP = 12  # jobs of each connection before the clock: its caches are filled, and its plans are the generic ones
READY_WITHIN_SECONDS = 120.0
FEW, MANY = 16, 200  # the connections that the targets compare
#: How many jobs at a time, and whether a worker needs a permit.
WAYS = {
    "eight jobs": (8, True), "one job": (1, True),
    "eight jobs, no permits": (8, False), "one job, no permits": (1, False),
}  # fmt: skip
#: The ways of a worker, for which there are targets.
REAL_WAYS = ("eight jobs", "one job")


@dataclass(frozen=True)
class Measured:
    rate: float
    milliseconds: float  # PostgreSQL's CPU per job
    failed: int  # statements that reached a time limit


Figures = dict[tuple[str, int], list[Measured]]


def claim(config: Config, slot: WorkerSlot, way: str, control: Connection) -> None:
    """Reports when it is warm, begins when it receives the end of the time, and sends the numbers of its jobs and of
    the statements that reached a time limit: like a worker, it tries these again."""
    database = Database.open(config.database, "bench", claims=True)
    cursor, holder, (wanted, needs_permit) = ClaimCursor(database, config), slot.holder, WAYS[way]
    breaker, next_claim = Breaker(config, Log(config, SERVER, holder)), NextClaim(cursor, SERVER, holder, wanted)
    permit = slot.permit if needs_permit and slot.table.permits.are_needed else None
    settlement = Settlement(JobQueue(database, config), open_store(config), breaker, JobEvents(), permit)
    jobs, failed = cursor.claim_job(SERVER, holder).jobs, 0

    def complete_and_claim(jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        nonlocal failed
        finished = [FinishedJob(job, Completed("bench")) for job in jobs]
        while True:
            try:
                claimed = settlement.complete(finished, next_claim)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
                failed += 1
            else:
                assert claimed
                return claimed.jobs

    for _ in range(WARM_UP):
        assert jobs
        jobs = complete_and_claim(jobs)
    control.send(True)
    end, done, failed = control.recv(), 0, 0
    while jobs and time.monotonic() < end:
        done += len(jobs)
        jobs = complete_and_claim(jobs)
    control.send((done, failed))


def measure(postgres: DurablePostgres, connections: int, way: str) -> Measured:
    fork, wanted = multiprocessing.get_context("fork"), WAYS[way][0]
    with big_table(postgres, "claimers", Rows(queued=wanted * (QUEUED + connections * (WARM_UP + 1)))) as config:
        pipes, status_table = [fork.Pipe() for _ in range(connections)], WorkerStatusTable(connections)
        status_table.server_id = SERVER
        processes = [
            fork.Process(target=claim, args=(config, WorkerSlot(status_table, number), way, theirs), daemon=True)
            for number, (_, theirs) in enumerate(pipes, 1)
        ]
        for process in processes:
            process.start()
        for ours, _ in pipes:
            assert ours.poll(READY_WITHIN_SECONDS), "a claimer is not ready"
            ours.recv()
        assert postgres.pid
        before, began = cpu_seconds(postgres.pid), time.monotonic()
        for ours, _ in pipes:
            ours.send(began + SECONDS)
        jobs, failed = (sum(numbers) for numbers in zip(*(ours.recv() for ours, _ in pipes), strict=True))
        spent, seconds = cpu_seconds(postgres.pid) - before, time.monotonic() - began
        for process in processes:
            process.join()
    return Measured(jobs / seconds, 1000 * spent / jobs, failed)


def measure_all(postgres: DurablePostgres) -> Figures:
    figures: Figures = {}
    for number in range(1, ROUNDS + 1):
        for connections in CONNECTIONS:
            for way in WAYS:
                found = measure(postgres, connections, way)
                figures.setdefault((way, connections), []).append(found)
                print(f"round {number}: {connections} connections, {way}: {found.rate:.0f} jobs/s", flush=True)
    return figures


def figures_table(figures: Figures) -> str:
    lines = [
        "| connections | way | jobs/s | least–most | PostgreSQL, CPU ms a job | failed |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for (name, connections), rounds in figures.items():
        rates = [one.rate for one in rounds]
        spread = f"{min(rates):.0f}–{max(rates):.0f}"
        cpu = median(one.milliseconds for one in rounds)
        failed = max(one.failed for one in rounds)
        lines.append(f"| {connections} | {name} | {median(rates):.0f} | {spread} | {cpu:.2f} | {failed} |")
    return "\n".join(lines)


def rows(figures: Figures) -> list[Row]:
    """For each way of a worker; none when other numbers of connections were asked for."""
    found = []
    for name in REAL_WAYS:
        rates = {of: median(one.rate for one in rounds) for (way, of), rounds in figures.items() if way == name}
        cpus = {of: median(one.milliseconds for one in rounds) for (way, of), rounds in figures.items() if way == name}
        if not {FEW, MANY} <= rates.keys():
            continue
        best, many = max(rates.values()), rates[MANY]
        rate_note, cpu_note = f"{many:.0f} and {best:.0f} jobs/s", f"{cpus[MANY]:.2f} and {cpus[FEW]:.2f} ms"
        cpu_ratio = cpus[MANY] / cpus[FEW]
        found += [
            at_least(f"{MANY} claimers, {name}: jobs/s against the best", 0.8, many / best, "×", rate_note),
            at_most(f"{MANY} claimers, {name}: PostgreSQL's CPU against {FEW}", 1.5, cpu_ratio, "×", cpu_note),
        ]
    return found


def scene() -> str:
    """A server of its own: one with the default number of connections has too few."""
    with DurablePostgres({"max_connections": str(max(CONNECTIONS) + 20)}) as postgres:
        figures = measure_all(postgres)
    targets = rows(figures)
    return figures_table(figures) + (f"\n\n{table(targets)}" if targets else "")


if __name__ == "__main__":
    print(scene())
