"""A long run: a million jobs drained through four workers, the last tenth as fast as the first.

python -m bench.long_run [--jobs 1000000]
"""

from __future__ import annotations

import argparse
import os

from bench.contenders import Convertq
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.report import Row, at_least, table
from bench.round import run_round

JOBS = int(os.environ.get("BENCH_LONG_JOBS", "1000000"))
WORKERS = 4


def rows(postgres: DurablePostgres, gateway: Gateway, jobs: int = JOBS) -> list[Row]:
    done = run_round(Convertq(), postgres, gateway, jobs, WORKERS)
    arrived = sorted(seen.at for seen in gateway.seen())
    tenth = jobs // 10
    first = tenth / (arrived[tenth] - arrived[WORKERS])  # the first ones waited for the gateway to open
    last = tenth / (arrived[-1] - arrived[-1 - tenth])
    note = f"{first:.0f} and {last:.0f} jobs/s, {done.rate:.0f} over all"
    return [
        at_least(
            f"{jobs:,} jobs through {WORKERS} workers: the last tenth against the first", 0.9, last / first, "×", note
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    asked = parser.parse_args()
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(table(rows(postgres, gateway, asked.jobs)))


if __name__ == "__main__":
    main()
