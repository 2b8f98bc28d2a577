"""A claimed job: what the worker needs to know of it, and its lease by the worker's own clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID


@dataclass
class Job:
    id: UUID
    holder: str
    attempt: int
    mapping: str
    pretty: bool
    bytes: int
    is_trial: bool  # the one job that a half-open breaker let through
    queued_ms: int
    claimed_at: float = field(default_factory=time.monotonic)
    lease_ends: float = 0.0  # by the monotonic clock, counted from before the statement that set it

    @cached_property
    def name(self) -> str:
        """Its id as it is written in paths, headers and log lines."""
        return str(self.id)

    @property
    def fence(self) -> dict[str, Any]:
        """What every write after the claim names."""
        return {"id": self.id, "holder": self.holder, "attempt": self.attempt}

    @property
    def duration_ms(self) -> int:
        return int((time.monotonic() - self.claimed_at) * 1000)
