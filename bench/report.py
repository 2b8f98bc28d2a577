"""What was measured, against its bar: one table at the end of a run, the same in a file, a picture beside it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.postgres import file_system


@dataclass(frozen=True)
class Row:
    measure: str
    bar: str
    measured: str
    ok: bool | None  # None: there is no bar


def at_least(measure: str, bar: float, value: float, unit: str = "", note: str = "") -> Row:
    return Row(measure, f"≥ {bar:g}{unit}", _shown(value, unit, note), value >= bar)


def at_most(measure: str, bar: float, value: float, unit: str = "", note: str = "") -> Row:
    return Row(measure, f"≤ {bar:g}{unit}", _shown(value, unit, note), value <= bar)


def _shown(value: float, unit: str, note: str) -> str:
    number = f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{number}{unit}" + (f" ({note})" if note else "")


def ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """The median over rounds, each with its own neighbour: what the machine did meanwhile is in both."""
    return median(this / that for this, that in zip(these, those, strict=True))


def table(rows: Sequence[Row]) -> str:
    words = {True: "ok", False: "**missed**", None: ""}
    lines = [f"| {row.measure} | {row.bar} | {row.measured} | {words[row.ok]} |" for row in rows]
    return "\n".join(["| measure | bar | measured | |", "|---|---|---|---|", *lines])


def machine(postgres_version: str) -> str:
    """One line: figures without it say nothing."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = f"{len(os.sched_getaffinity(0))} cores{f' ({model[1]})' if model else ''}"
    server = f"PostgreSQL {postgres_version} with its durable defaults on {file_system()}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {cores}, {server}, Python {platform.python_version()}"
