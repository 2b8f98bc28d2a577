"""One place for a worker in its supervisor's pool. Its number is the last part of `leased_by`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Slot:
    number: int
    pid: int = 0
    started: float = 0.0
    start_at: float = 0.0
    quick_deaths: int = 0
    killed: str = ""  # why, when the supervisor killed it
