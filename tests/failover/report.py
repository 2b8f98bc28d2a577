"""The table of the failover tests, as docs/reliability.md has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

HEAD = (
    "what happens", "standby", "times", "acknowledged", "lost", "completed twice", "calls repeated",
    "first completion, p50 s", "max s", "processes lost",
)  # fmt: skip


@dataclass
class Line:
    what: str
    standby: str
    acknowledged: int
    lost: int
    twice: int
    repeated_calls: int
    first_completions: list[float]
    processes_lost: int

    @property
    def cells(self) -> list[str]:
        times = self.first_completions
        counts = (len(times), self.acknowledged, self.lost, self.twice, self.repeated_calls)
        return [
            self.what, self.standby, *map(str, counts), f"{median(times):.2f}", f"{max(times):.2f}",
            str(self.processes_lost),
        ]  # fmt: skip


@dataclass
class Report:
    lines: list[Line] = field(default_factory=list)

    def table(self) -> str:
        rows = [list(HEAD), ["---", "---", *["---:"] * (len(HEAD) - 2)], *(line.cells for line in self.lines)]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)
