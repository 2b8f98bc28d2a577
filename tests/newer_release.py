"""A later release in tests: this checkout with further migrations, which real commands and workers find.

Its packages are links to those of the checkout, except for `sql`, which is a copy. A process whose PYTHONPATH begins
with its folder runs the later release; every other process runs this one.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from convertq import sql

from tests.processes import Process

ROOT = Path(__file__).parents[1]
PROGRAM = (sys.executable, "-m", "convertq.cli.main")


class NewerRelease:
    def __init__(self, folder: Path) -> None:
        self.folder, self.version = folder, sql.migrations()[-1].version
        self._sql = folder / "convertq" / "sql"
        shutil.copytree(ROOT / "sql", self._sql, ignore=shutil.ignore_patterns("__pycache__"))
        for package in ("cli", "embedded", "gateway", "queue", "web", "worker"):
            (folder / "convertq" / package).symlink_to(ROOT / package)

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def add(self, name: str, text: str) -> int:
        """One more migration; returns its version."""
        self.version += 1
        (self._sql / "migrations" / f"{self.version:04}_{name}.sql").write_text(text)
        return self.version

    def add_column(self) -> int:
        """An additive migration behind every reader and writer of jobs, whom ALTER TABLE locks out; its version."""
        name = f"column_{self.version + 1}"
        return self.add(
            name,
            "-- A column that older code does not know.\n"
            f"-- supports code from: {sql.migrations()[-1].version}\n\n"
            f"ALTER TABLE {{schema}}.jobs ADD COLUMN {name} text;\n",
        )

    def start(self, *arguments: str, environment: dict[str, str]) -> Process:
        return Process(*arguments, environment=environment | self.environment, program=PROGRAM)
