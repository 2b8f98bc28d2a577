"""What the benchmark printed, one file a scene in bench/results; docs/benchmarks.md shows these files and nothing else.

A run of `python -m bench` replaces the files of the scenes it ran and writes docs/benchmarks.md again.
"""

from __future__ import annotations

import subprocess
import textwrap
from datetime import UTC, datetime

from bench.contender import ROOT

RESULTS = ROOT / "bench" / "results"
DOCUMENT = "docs/benchmarks.md"
COLUMNS = 100
NOT_MEASURED = "Not measured yet.\n"


def read(scene: str) -> str:
    file = RESULTS / f"{scene}.md"
    return file.read_text() if file.exists() else NOT_MEASURED


def keep(scene: str, text: str, machine: str) -> None:
    """With the command, the day, the commit and the machine: figures without them say nothing."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{scene}.md").write_text(in_columns(f"{heading(scene, machine)}\n\n{text.strip()}\n"))


def heading(scene: str, machine: str) -> str:
    return f"`python -m bench {scene}`, {datetime.now(UTC):%Y-%m-%d}{commit()}: {machine}."


def commit() -> str:
    """Empty where this is not a clone."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout
    return f" at commit {found}{' with changes' if changed else ''}" if found else ""


def in_columns(text: str) -> str:
    """Prose is wrapped, tables are not."""
    lines = [line if line.startswith("|") else textwrap.fill(line, COLUMNS) for line in text.splitlines()]
    return "\n".join(lines) + "\n"
