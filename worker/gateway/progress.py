"""How far a call has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """Written by the thread that makes the call, read by the thread that monitors it."""

    step: str = "reading"
    bytes_done: int = 0
    bytes_total: int | None = None

    @property
    def percent(self) -> int:
        """Reading is the first third, waiting for the answer is half, writing is the rest."""
        done = min(1.0, self.bytes_done / self.bytes_total) if self.bytes_total else 0.0
        return {"reading": int(33 * done), "converting": 50, "writing": 50 + int(49 * done)}[self.step]
