"""Everything that `make bench` measures, against its bars: a table at the end, bench/results/latest.md, docs/bench.svg.

    python -m bench [throughput] [slow-gateway] [latency] [pool] [claims] [snapshot] [long]

BENCH_LONG=1 adds a million jobs through four workers. Sizes come from the environment: see each module.
"""

from __future__ import annotations

import os
import sys
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
        self._postgres, self._gateway = postgres, gateway
        with psycopg.connect(postgres.url()) as conn:
            self.machine = report.machine(conn.info.parameter_status("server_version") or "")
        self.details: list[str] = []
        self.picture = ""

    @property
    def parts(self) -> dict[str, Callable[[], list[Row]]]:
        both = self._postgres, self._gateway
        return {
            "throughput": self._throughput,
            "slow-gateway": lambda: [throughput.with_a_slow_gateway(*both, min(3, throughput.ROUNDS))],
            "latency": lambda: latency.rows(latency.measure(*both, latency.SUBMISSIONS)),
            "pool": lambda: pool.rows(*both),
            "claims": lambda: claims.rows(self._postgres),
            "snapshot": lambda: snapshot.rows(self._postgres),
            "long": lambda: long_run.rows(*both),
        }

    def _throughput(self) -> list[Row]:
        asked = throughput.ROUNDS, throughput.JOBS, 4, 0.0
        results = throughput.compare(self._postgres, self._gateway, list(CONTENDERS), *asked)
        self.details.append(throughput.table(results))
        rates = {name: [one.rate for one in rounds] for name, rounds in results.items()}
        self.picture = picture({name: (median(of), min(of), max(of)) for name, of in rates.items()}, self.machine)
        return throughput.rows(results)


def main() -> None:
    with DurablePostgres() as postgres, null_gateway() as gateway:
        run = Run(postgres, gateway)
        default = [part for part in run.parts if part != "long" or os.environ.get("BENCH_LONG")]
        rows: list[Row] = []
        for part in sys.argv[1:] or default:
            print(f"-- {part}", flush=True)
            rows += run.parts[part]()
    text = "\n\n".join([run.machine + ".", *run.details, report.table(rows)]) + "\n"
    print(f"\n{text}", end="")
    keep(text, run.picture)


def keep(text: str, drawn: str) -> None:
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.md").write_text(text)
    if drawn:
        (ROOT / "docs" / "bench.svg").write_text(drawn)


if __name__ == "__main__":
    main()
