"""What was measured, against its target, as the rows of a table; a ratio always with the two medians it is made of."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
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
    return f"{_number(value)}{unit}" + (f" ({note})" if note else "")


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio_at_least(measure: str, bar: float, these: Sequence[float], those: Sequence[float], unit: str) -> Row:
    return at_least(measure, bar, ratio(these, those), "×", _beside(these, those, unit))


def ratio_at_most(
    measure: str, bar: float, these: Sequence[float], those: Sequence[float], unit: str, *, rounds: bool = True
) -> Row:
    return at_most(measure, bar, ratio(these, those), "×", _beside(these, those, unit, rounds=rounds))


def ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """The quotient of the two medians that the row prints beside it."""
    return median(these) / median(those)


def _beside(these: Sequence[float], those: Sequence[float], unit: str, *, rounds: bool = True) -> str:
    """Both medians, and the least and the most ratio of two neighbours when the figures are by round."""
    shown = f"{_number(median(these))} and {_number(median(those))} {unit}"
    if not rounds or len(these) < 2:
        return shown
    by_round = [this / that for this, that in zip(these, those, strict=True)]
    return f"{shown}; by round {min(by_round):.2f}–{max(by_round):.2f}"


def table(rows: Sequence[Row]) -> str:
    words = {True: "met", False: "**missed**", None: ""}
    lines = [f"| {row.measure} | {row.bar} | {row.measured} | {words[row.ok]} |" for row in rows]
    return "\n".join(["| measure | target | measured | |", "|---|---|---|---|", *lines])


def machine(postgres_version: str) -> str:
    """One line that stands beside every table."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = f"{len(os.sched_getaffinity(0))} cores{f' ({model[1]})' if model else ''}"
    server = f"PostgreSQL {postgres_version} with its durable defaults on {file_system()}"
    return f"{cores}, {server}, Python {platform.python_version()}"
