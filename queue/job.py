"""A job as the worker that claimed it knows it, with its lease by that worker's own clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from convertq.queue.gateway import DEFAULT_GATEWAY


@dataclass
class ClaimedJob:
    id: UUID
    holder: str
    attempt: int
    mapping: str
    pretty: bool
    bytes: int
    is_trial: bool  # the one job that a half-open breaker has let through
    queued_ms: int  # how long it was claimable
    route: str = DEFAULT_GATEWAY  # the gateway whose claim found it
    run: int = 1  # counts how often the job was started over: a result is valid for its own run only
    begun_at: float = field(default_factory=time.monotonic)  # when it was claimed, or its attempt began
    lease_ends: float = 0.0  # by the monotonic clock: never later than the lease in the row
    ended_at: float | None = None  # when its attempt ended; None before
    name: str = field(init=False)  # its id as it is written in paths, headers and log lines

    def __post_init__(self) -> None:
        self.name = str(self.id)

    @property
    def fence(self) -> dict[str, Any]:
        """The conditions of every write after the claim: it changes nothing once the lease is lost."""
        return {"id": self.name, "holder": self.holder, "attempt": self.attempt, "run": self.run}

    @property
    def gateway_in_events(self) -> str | None:
        """None: `default`, whose name events leave out."""
        return None if self.route == DEFAULT_GATEWAY else self.route

    def begin(self) -> None:
        """Called when the attempt begins: a job that was claimed ahead has waited until then."""
        self.begun_at = time.monotonic()

    def end(self) -> None:
        """Called when the attempt has ended. Its outcome may be recorded later, together with others."""
        self.ended_at = time.monotonic()

    @property
    def duration_seconds(self) -> float:
        """Of the attempt, so far or in all."""
        return (self.ended_at or time.monotonic()) - self.begun_at

    @property
    def duration_ms(self) -> int:
        return int(self.duration_seconds * 1000)
