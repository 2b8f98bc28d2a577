"""Jobs a second, side by side: every contender on the same work, in rounds that take turns.

    python -m bench.throughput [--only convertq,Procrastinate] [--rounds 5] [--jobs 8000] [--workers 4] [--delay 0.1]

Medians with their spread (least to most), CPU of the contender and of PostgreSQL per job, and each ratio. BENCH_ROUNDS,
BENCH_JOBS and BENCH_DIR (where PostgreSQL's data and the documents are) do the same from the environment.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from statistics import median

from bench import report
from bench.contenders import CONTENDERS
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.report import Row, at_least, ratio_at_least, ratio_at_most
from bench.round import Round, run_round

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
JOBS = int(os.environ.get("BENCH_JOBS", "8000"))
#: the throughput of convertq against each, at least; of several variants of a peer the fastest counts
TARGETS: dict[tuple[str, ...], float] = {
    ("PgQueuer", "PgQueuer (files in a thread)", "PgQueuer (blocking)"): 1.15,
    ("Procrastinate", "Procrastinate (files in a thread)"): 2.8,
    ("dramatiq + Redis",): 1.4,
    ("graphile-worker",): 1.3,
    ("graphile-worker (batches of 50)",): 1.0,
    ("pg-boss (batches of 50)",): 1.0,
    ("bare loop",): 0.75,
}
SLOW, SLOW_WORKERS = 0.1, 16  # s that the gateway takes, and how many wait for it at a time
SLOW_NAMES = ("convertq", "Procrastinate", "PgQueuer", "graphile-worker")

Results = dict[str, list[Round]]


def compare(
    postgres: DurablePostgres,
    gateway: Gateway,
    names: Sequence[str],
    rounds: int,
    jobs: int,
    workers: int,
    delay: float = 0.0,
) -> Results:
    """A B C, A B C, …: whatever else the machine does meets them all."""
    results: Results = {name: [] for name in able(names)}
    for number in range(1, rounds + 1):
        for name in results:
            done = run_round(CONTENDERS[name], postgres, gateway, jobs, workers, delay)
            results[name].append(done)
            cost = f"{done.cpu_per_job * 1000:.2f} ms CPU a job"
            print(f"round {number}: {name:<32} {done.rate:7.0f} jobs/s, {cost}", flush=True)
    return results


def able(names: Sequence[str]) -> list[str]:
    """Those that can run on this machine."""
    return [name for name in names if not CONTENDERS[name].missing()]


def skipped(names: Sequence[str]) -> str:
    lines = [f"Skipped: {name}: {why}." for name in names if (why := CONTENDERS[name].missing())]
    return "\n".join(lines)


def table(results: Results) -> str:
    lines = [
        "| contender | jobs/s | least–most | CPU ms a job: worker | PostgreSQL | Redis |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, rounds in results.items():
        rates = [one.rate for one in rounds]
        spent = ((one.cpu / one.jobs, one.postgres_cpu / one.jobs, one.other_cpu / one.jobs) for one in rounds)
        cpus = " | ".join(f"{1000 * median(cpu):.2f}" for cpu in zip(*spent, strict=True))
        lines.append(f"| {name} | {median(rates):.0f} | {min(rates):.0f}–{max(rates):.0f} | {cpus} |")
    return "\n".join(lines)


def guarantees(names: Sequence[str]) -> str:
    """What each contender does not promise and convertq does."""
    lines = [f"| {name} | {CONTENDERS[name].lacks} |" for name in names if CONTENDERS[name].lacks]
    return "\n".join(["| contender | what it does not give |", "|---|---|", *lines])


def rows(results: Results) -> list[Row]:
    """Rows for those peers only that ran."""
    rates = {name: [one.rate for one in rounds] for name, rounds in results.items()}
    cpus = {name: [1000 * one.cpu_per_job for one in rounds] for name, rounds in results.items()}
    fastest = {
        max(ran, key=lambda name: median(rates[name])): target
        for variants, target in TARGETS.items()
        if (ran := [name for name in variants if name in rates])
    }
    found = [
        ratio_at_least(f"throughput, N = 4, against {name}", target, rates["convertq"], rates[name], "jobs/s")
        for name, target in fastest.items()
    ]
    for name in fastest:
        if name.startswith("Procrastinate"):
            measure = f"CPU of worker and PostgreSQL per job, against {name}"
            found.append(ratio_at_most(measure, 0.6, cpus["convertq"], cpus[name], "ms"))
    return found


def with_a_slow_gateway(postgres: DurablePostgres, gateway: Gateway, rounds: int) -> Row:
    ideal = SLOW_WORKERS / SLOW
    results = compare(postgres, gateway, SLOW_NAMES, rounds, int(ideal * 6), SLOW_WORKERS, SLOW)
    shares = {name: median(one.rate for one in done) / ideal for name, done in results.items()}
    note = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    return at_least("gateway of 100 ms, N = 16: share of the ideal", 0.95, shares["convertq"], "", note)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(CONTENDERS), help="contenders, separated by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--jobs", type=int, default=JOBS, help="in each round")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that the gateway takes")
    asked = parser.parse_args()
    with DurablePostgres() as postgres, null_gateway() as gateway:
        results = compare(
            postgres, gateway, asked.only.split(","), asked.rounds, asked.jobs, asked.workers, asked.delay
        )
    print(f"\n{table(results)}")
    if "convertq" in results:
        print(f"\n{report.table(rows(results))}")


if __name__ == "__main__":
    main()
