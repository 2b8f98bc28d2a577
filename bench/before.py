"""This checkout beside an earlier version of itself, in one run: throughput, CPU, pick-up latency, memory.

    python -m bench.before REF [--rounds 7] [--jobs 8000] [--submissions 300]

REF is any commit. Its files are unpacked and installed in bench/.before/<commit>; rounds of both versions alternate.
Each ratio is the median of this version divided by that of the version before; its spread is by neighbouring rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from bench import latency, throughput
from bench.contender import ROOT, Place
from bench.contenders import CONTENDERS, Convertq
from bench.gateway import Gateway, null_gateway
from bench.pool import pss_of_workers
from bench.postgres import DurablePostgres
from bench.report import Row, machine, ratio_at_least, ratio_at_most, table
from bench.round import Round

#: the commit that the figures of 0.1.0 were measured at
REF = os.environ.get("BENCH_BEFORE", "2f95926")
NOW, BEFORE = "convertq", "the version before"
WORKERS = 4
POOL_ROUNDS = 3


class EarlierConvertq(Convertq):
    """An earlier version, with its own schema and its own installation."""

    name = BEFORE

    def __init__(self, checkout: Path) -> None:
        self._convertq = str(checkout / ".venv" / "bin" / "convertq")

    def prepare(self, place: Place) -> None:
        subprocess.run([self._convertq, "migrate"], env=place.environment(), check=True, stdout=subprocess.DEVNULL)

    def commands(self, workers: int) -> list[list[str]]:
        return [[self._convertq, "worker", "run", "--concurrency", str(workers)]]


def install(ref: str) -> Path:
    """The checkout of that commit, ready to run; a second call finds it there."""
    commit = _git("rev-parse", "--verify", f"{ref}^{{commit}}").decode().strip()
    checkout = ROOT / "bench" / ".before" / commit
    if not (checkout / "Makefile").exists():
        checkout.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(checkout)], input=_git("archive", commit), check=True)
    subprocess.run(["make", "-C", str(checkout), ".venv/.installed"], check=True, stdout=subprocess.DEVNULL)
    return checkout


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout


def rows(
    postgres: DurablePostgres, gateway: Gateway, rounds: int, jobs: int, submissions: int
) -> tuple[throughput.Results, list[Row]]:
    results = throughput.compare(postgres, gateway, [NOW, BEFORE], rounds, jobs, WORKERS)
    times = latency.measure(postgres, gateway, submissions, (NOW, BEFORE))
    memory = {name: [_pss(postgres, gateway, name) for _ in range(POOL_ROUNDS)] for name in (NOW, BEFORE)}
    return results, [
        *_throughput_rows(results),
        *_latency_rows(times),
        ratio_at_most("PSS per worker after work, N = 16", 1.02, memory[NOW], memory[BEFORE], "MB"),
    ]


def _throughput_rows(results: throughput.Results) -> list[Row]:
    now, before = results[NOW], results[BEFORE]
    costs: dict[str, tuple[float, Callable[[Round], float]]] = {
        "worker + PostgreSQL": (0.67, lambda one: 1000 * one.cpu_per_job),
        "worker": (1.02, lambda one: 1000 * one.cpu / one.jobs),
        "PostgreSQL": (1.02, lambda one: 1000 * one.postgres_cpu / one.jobs),
    }
    rates = [one.rate for one in now], [one.rate for one in before]
    return [
        ratio_at_least("throughput, N = 4, against the version before", 0.98, *rates, "jobs/s"),
        *(
            ratio_at_most(
                f"CPU of {whose} per job, against the version before", target,
                [cost(one) for one in now], [cost(one) for one in before], "ms",
            )
            for whose, (target, cost) in costs.items()
        ),
    ]  # fmt: skip


def _latency_rows(times: latency.Times) -> list[Row]:
    p99 = f"{latency.p99(times[NOW]):.1f} and {latency.p99(times[BEFORE]):.1f} ms"
    measure = "submit → gateway request, against the version before"
    return [
        ratio_at_most(f"{measure}: p50", 1.02, times[NOW], times[BEFORE], "ms", rounds=False),
        Row(f"{measure}: p99", "", p99, None),
    ]


def _pss(postgres: DurablePostgres, gateway: Gateway, name: str) -> float:
    return mean(pss_of_workers(CONTENDERS[name], postgres, gateway))


def scene(postgres: DurablePostgres, gateway: Gateway) -> tuple[str, list[Row]]:
    """The part of `python -m bench`: beside the commit in BENCH_BEFORE, if this is a clone that has it."""
    try:
        CONTENDERS[BEFORE] = EarlierConvertq(install(REF))
    except (OSError, subprocess.CalledProcessError) as error:
        return f"Skipped: the version before ({REF}) cannot be installed here: {error}", []
    results, found = rows(postgres, gateway, throughput.ROUNDS, throughput.JOBS, latency.SUBMISSIONS)
    return f"The version before is commit {REF}.\n\n{throughput.table(results)}", found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ref", metavar="REF", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=throughput.JOBS, help="in each round")
    parser.add_argument("--submissions", type=int, default=latency.SUBMISSIONS)
    asked = parser.parse_args()
    CONTENDERS[BEFORE] = EarlierConvertq(install(asked.ref))
    with DurablePostgres() as postgres, null_gateway() as gateway:
        results, found = rows(postgres, gateway, asked.rounds, asked.jobs, asked.submissions)
        print(f"\n{machine(postgres.server_version())}.\n\n{throughput.table(results)}\n\n{table(found)}")


if __name__ == "__main__":
    main()
