"""How soon an idle pool begins: from just before a job is handed in to the arrival of its request at the gateway.

    python -m bench.latency [--submissions 300]

All pools are up at once and take turns, one job at a time: whatever else the machine does meets them all.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median, quantiles

from bench.contender import Contender
from bench.contenders import CONTENDERS
from bench.documents import lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.report import Row, at_most, ratio_at_most, table
from bench.round import place_for, working
from bench.throughput import able

SUBMISSIONS = int(os.environ.get("BENCH_SUBMISSIONS", "300"))
NAMES = ("convertq", "Procrastinate", "PgQueuer", "graphile-worker")
WORKERS = 4
WARM_UP = 20
PAUSE = 0.05, 0.15  # s: after it, what came before is long done
DONE_WITHIN = 10.0

Times = dict[str, list[float]]


def measure(postgres: DurablePostgres, gateway: Gateway, submissions: int, names: Sequence[str] = NAMES) -> Times:
    return measure_contenders(postgres, gateway, submissions, [CONTENDERS[name] for name in able(names)])


def measure_contenders(
    postgres: DurablePostgres, gateway: Gateway, submissions: int, contenders: Sequence[Contender]
) -> Times:
    """Milliseconds, by contender."""
    gateway.reset()
    submitted: dict[str, tuple[str, float]] = {}
    with ExitStack() as up:
        turns = []
        for contender in contenders:
            place = up.enter_context(place_for(contender, postgres, gateway))
            ids = lay_out(place.uploads, WARM_UP + submissions)
            up.enter_context(working(contender, place, WORKERS))
            turns.append((contender.name, ids, up.enter_context(contender.submitting(place))))
        for number in range(WARM_UP + submissions):
            for name, ids, submit in random.sample(turns, len(turns)):
                submitted[str(ids[number])] = name, submit(ids[number])
                if number < WARM_UP:
                    gateway.wait_for(len(submitted), DONE_WITHIN)
                time.sleep(random.uniform(*PAUSE))
        gateway.wait_for(len(submitted), DONE_WITHIN)
        return _times(gateway, submitted, len(turns) * WARM_UP)


def _times(gateway: Gateway, submitted: dict[str, tuple[str, float]], warm_up: int) -> Times:
    arrived = {seen.job_id: seen.at for seen in gateway.seen()}
    times: Times = {}
    for job_id, (name, before) in list(submitted.items())[warm_up:]:
        times.setdefault(name, []).append((arrived[job_id] - before) * 1000)
    return times


def p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]


def rows(times: Times) -> list[Row]:
    """The peers' figures stand beside; the target is a ratio to Procrastinate."""
    measure = "submit → gateway request, idle pool"
    ours, found = times["convertq"], []
    if "Procrastinate" in times:
        found.append(
            ratio_at_most(
                f"{measure}: p50 against Procrastinate", 0.6, ours, times["Procrastinate"], "ms", rounds=False
            )
        )
    found.append(
        Row(f"{measure}: p50", "", ", ".join(f"{name} {median(of):.1f} ms" for name, of in times.items()), None)
    )
    others = ", ".join(f"{name} {p99(of):.1f}" for name, of in times.items() if name != "convertq")
    return [*found, at_most(f"{measure}: p99", 10, p99(ours), " ms", others)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--submissions", type=int, default=SUBMISSIONS)
    asked = parser.parse_args()
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(table(rows(measure(postgres, gateway, asked.submissions))))


if __name__ == "__main__":
    main()
