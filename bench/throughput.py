"""Jobs a second, side by side: every contender on the same work, in rounds that take turns.

    python -m bench.throughput [--only convertq,procrastinate] [--rounds 5] [--jobs 4000] [--workers 4] [--delay 0.1]

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
from bench.report import Row, at_least, at_most, ratio
from bench.round import Round, run_round

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
JOBS = int(os.environ.get("BENCH_JOBS", "4000"))
#: the throughput of convertq against each, at least
BARS = {"Procrastinate": 2.4, "PgQueuer": 1.0, "PgQueuer one at a time": 1.8, "bare loop": 0.75}
SLOW, SLOW_WORKERS = 0.1, 16  # s that the gateway takes, and how many wait for it at a time
SLOW_NAMES = ("convertq", "Procrastinate", "PgQueuer one at a time")

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
    results: Results = {name: [] for name in names}
    for number in range(1, rounds + 1):
        for name in names:
            done = run_round(CONTENDERS[name], postgres, gateway, jobs, workers, delay)
            results[name].append(done)
            cost = f"{done.cpu_per_job * 1000:.2f} ms CPU a job"
            print(f"round {number}: {name:<22} {done.rate:7.0f} jobs/s, {cost}", flush=True)
    return results


def table(results: Results) -> str:
    lines = ["| | jobs/s | least–most | CPU ms a job: its own | PostgreSQL |", "|---|---:|---:|---:|---:|"]
    for name, rounds in results.items():
        rates = [one.rate for one in rounds]
        own, server = (1000 * median(cpus) for cpus in _cpus(rounds))
        lines.append(f"| {name} | {median(rates):.0f} | {min(rates):.0f}–{max(rates):.0f} | {own:.2f} | {server:.2f} |")
    return "\n".join(lines)


def _cpus(rounds: Sequence[Round]) -> tuple[list[float], list[float]]:
    return [one.cpu / one.jobs for one in rounds], [one.postgres_cpu / one.jobs for one in rounds]


def rows(results: Results) -> list[Row]:
    rates = {name: [one.rate for one in rounds] for name, rounds in results.items()}
    cpus = {name: [one.cpu_per_job for one in rounds] for name, rounds in results.items()}
    found = [
        at_least(
            f"throughput, N = 4, against {name}", bar, ratio(rates["convertq"], rates[name]), "×",
            f"{median(rates['convertq']):.0f} and {median(rates[name]):.0f} jobs/s",
        )
        for name, bar in BARS.items()
    ]  # fmt: skip
    ours, theirs = (1000 * median(cpus[name]) for name in ("convertq", "Procrastinate"))
    against = ratio(cpus["convertq"], cpus["Procrastinate"])
    note = f"{ours:.2f} and {theirs:.2f} ms"
    return [*found, at_most("CPU with PostgreSQL's per job, against Procrastinate", 0.6, against, "×", note)]


def with_a_slow_gateway(postgres: DurablePostgres, gateway: Gateway, rounds: int) -> Row:
    ideal = SLOW_WORKERS / SLOW
    results = compare(postgres, gateway, SLOW_NAMES, rounds, int(ideal * 6), SLOW_WORKERS, SLOW)
    shares = {name: median(one.rate for one in done) / ideal for name, done in results.items()}
    note = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    return at_least("gateway of 100 ms, N = 16: share of the ideal", 0.93, shares["convertq"], "", note)


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
    if results.keys() == CONTENDERS.keys():
        print(f"\n{report.table(rows(results))}")


if __name__ == "__main__":
    main()
