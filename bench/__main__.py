"""Everything that `make bench` measures, each against its bar, in one table at the end.

    python -m bench [throughput] [slow-gateway] [latency] [pool] [claims] [snapshot] [long]

Without arguments all of it, and the table is kept in bench/results/latest.md, the picture in docs/bench.svg.
BENCH_LONG=1 adds `long`: a million jobs. The sizes that the environment may set are in bench/README.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from statistics import median

import psycopg

from bench import claims, latency, long_run, pool, report, snapshot, throughput
from bench.contender import ROOT
from bench.contenders import CONTENDERS
from bench.gateway import Gateway, null_gateway
from bench.picture import picture
from bench.postgres import DurablePostgres
from bench.report import Row


class Run:
    """One server and one gateway for all of it."""

    def __init__(self, postgres: DurablePostgres, gateway: Gateway) -> None:
        self.both = self.postgres, self.gateway = postgres, gateway
        with psycopg.connect(postgres.url()) as conn:
            self.machine = report.machine(conn.info.parameter_status("server_version") or "")
        self.details: list[str] = []
        self.picture = ""

    def throughput(self) -> list[Row]:
        results = throughput.compare(*self.both, list(CONTENDERS), throughput.ROUNDS, throughput.JOBS, workers=4)
        self.details.append(throughput.table(results))
        rates = {name: [one.rate for one in rounds] for name, rounds in results.items()}
        self.picture = picture({name: (median(of), min(of), max(of)) for name, of in rates.items()}, self.machine)
        return throughput.rows(results)


PARTS: dict[str, Callable[[Run], list[Row]]] = {
    "throughput": Run.throughput,
    "slow-gateway": lambda run: [throughput.with_a_slow_gateway(*run.both, min(3, throughput.ROUNDS))],
    "latency": lambda run: latency.rows(latency.measure(*run.both, latency.SUBMISSIONS)),
    "pool": lambda run: pool.rows(*run.both),
    "claims": lambda run: claims.rows(run.postgres),
    "snapshot": lambda run: snapshot.rows(run.postgres),
    "long": lambda run: long_run.rows(*run.both),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    asked = parser.parse_args().parts
    if unknown := set(asked) - set(PARTS):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    with DurablePostgres() as postgres, null_gateway() as gateway:
        run = Run(postgres, gateway)
        rows: list[Row] = []
        for part in asked or [part for part in PARTS if part != "long" or os.environ.get("BENCH_LONG")]:
            print(f"-- {part}", flush=True)
            rows += PARTS[part](run)
    text = "\n\n".join([run.machine + ".", *run.details, report.table(rows)]) + "\n"
    print(f"\n{text}", end="")
    if not asked:
        keep(text, run.picture)


def keep(text: str, drawn: str) -> None:
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.md").write_text(text)
    (ROOT / "docs" / "bench.svg").write_text(drawn)


if __name__ == "__main__":
    main()
