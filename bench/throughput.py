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

from bench.contenders import CONTENDERS
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.round import Round, run_round

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
JOBS = int(os.environ.get("BENCH_JOBS", "4000"))

Results = dict[str, list[Round]]


def compare(
    postgres: DurablePostgres,
    gateway: Gateway,
    names: Sequence[str],
    rounds: int,
    jobs: int,
    workers: int,
    delay: float,
) -> Results:
    """A B C, A B C, …: whatever else the machine does meets them all."""
    results: Results = {name: [] for name in names}
    for number in range(1, rounds + 1):
        for name in names:
            done = run_round(CONTENDERS[name], postgres, gateway, jobs, workers, delay)
            results[name].append(done)
            print(
                f"round {number}: {name:<20} {done.rate:7.0f} jobs/s, {done.cpu_per_job * 1000:.2f} ms CPU a job",
                flush=True,
            )
    return results


def rate(rounds: Sequence[Round]) -> float:
    return median(one.rate for one in rounds)


def cpu_per_job(rounds: Sequence[Round]) -> float:
    return median(one.cpu_per_job for one in rounds)


def table(results: Results) -> str:
    lines = ["| | jobs/s | least–most | CPU ms a job: its own | PostgreSQL |", "|---|---:|---:|---:|---:|"]
    for name, rounds in results.items():
        rates = [one.rate for one in rounds]
        own, server = (1000 * median(cpus) for cpus in _cpus(rounds))
        lines.append(f"| {name} | {rate(rounds):.0f} | {min(rates):.0f}–{max(rates):.0f} | {own:.2f} | {server:.2f} |")
    return "\n".join(lines)


def _cpus(rounds: Sequence[Round]) -> tuple[list[float], list[float]]:
    return [one.cpu / one.jobs for one in rounds], [one.postgres_cpu / one.jobs for one in rounds]


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


if __name__ == "__main__":
    main()
