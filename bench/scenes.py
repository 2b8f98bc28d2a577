"""The scenes of the benchmark: what each of them measures is in bench/README.md."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench import (
    auto_limit,
    before,
    big_history,
    claimers,
    claims,
    estimates,
    fair,
    fleet,
    held,
    idle,
    latency,
    long_run,
    pool,
    report,
    s3,
    snapshot,
    submissions,
    throughput,
)  # fmt: skip
from bench.contender import ROOT
from bench.contenders import CONTENDERS
from bench.gateway import Gateway
from bench.picture import picture
from bench.postgres import DurablePostgres
from bench.report import Row

PICTURE = ROOT / "docs" / "bench.svg"


@dataclass(frozen=True)
class Run:
    """One server and one gateway for all scenes. `keeps`: the picture is written too."""

    postgres: DurablePostgres
    gateway: Gateway
    keeps: bool = False

    @property
    def both(self) -> tuple[DurablePostgres, Gateway]:
        return self.postgres, self.gateway

    @property
    def machine(self) -> str:
        return report.machine(self.postgres.server_version())


Scene = Callable[[Run], str]


def peers(run: Run) -> str:
    names = list(CONTENDERS)
    results = throughput.compare(*run.both, names, throughput.ROUNDS, throughput.JOBS, workers=4)
    if run.keeps:
        rates = {name: [one.rate for one in rounds] for name, rounds in results.items()}
        PICTURE.write_text(
            picture({name: (median(of), min(of), max(of)) for name, of in rates.items()}, run.machine)
        )  # fmt: skip
    return together(
        f"Medians of {throughput.ROUNDS} rounds of {throughput.JOBS:,} jobs, four workers.",
        throughput.table(results), throughput.skipped(names), report.table(throughput.rows(results)),
        throughput.guarantees(list(results)),
    )  # fmt: skip


def beside_the_version_before(run: Run) -> str:
    text, rows = before.scene(*run.both)
    return together(text, report.table(rows) if rows else "")


def together(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def of_rows(measure: Callable[[Run], list[Row]]) -> Scene:
    return lambda run: report.table(measure(run))


def of_module(module: str) -> Scene:
    """A module that starts its own server and prints Markdown: what it prints is shown as it comes, and kept."""

    def printed(run: Run) -> str:
        lines = []
        with subprocess.Popen([sys.executable, "-m", module], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        if process.returncode:
            raise SystemExit(f"{module} failed")
        return "".join(lines)

    return printed


SCENES: dict[str, Scene] = {
    "throughput": peers,
    "slow-gateway": of_rows(lambda run: [throughput.with_a_slow_gateway(*run.both, min(3, throughput.ROUNDS))]),
    "latency": of_rows(lambda run: latency.rows(latency.measure(*run.both, latency.SUBMISSIONS))),
    "before": beside_the_version_before,
    "s3": of_rows(lambda run: s3.rows(*run.both)),
    "pool": of_rows(lambda run: pool.rows(*run.both)),
    "claimers": lambda run: claimers.scene(),
    "fleet": lambda run: fleet.scene(run.gateway, run.machine, keeps=run.keeps),
    "claims": of_rows(lambda run: claims.rows(run.postgres)),
    "fair": of_rows(lambda run: fair.rows(*run.both)),
    "held": of_rows(lambda run: held.rows(run.postgres)),
    "auto": lambda run: auto_limit.scene(*run.both, keeps=run.keeps),
    "estimates": of_rows(lambda run: estimates.rows(*run.both)),
    "history": lambda run: big_history.scene(run.postgres),
    "snapshot": of_rows(lambda run: snapshot.rows(run.postgres)),
    "idle": of_rows(lambda run: idle.rows(*run.both)),
    "submissions": of_rows(lambda run: submissions.rows(run.postgres)),
    "steps": of_module("bench.steps"),
    "long": lambda run: long_run.scene(*run.both),
    "commands": of_module("bench.operator_commands"),
    "retention": of_module("bench.retention"),
    "web": of_module("bench.web"),
    "refusal-times": of_module("bench.refusal_times"),
    "keep-alive": of_module("bench.keep_alive"),
}
