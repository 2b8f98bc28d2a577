"""How an attempt ended, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from convertq.worker.errors import Failure
from convertq.worker.files import AnyPath


@dataclass(frozen=True)
class Completed:
    part: AnyPath | None  # the checked temp file; None: the result was in place, left by an attempt that died
    gateway_status: int | None = None
    gateway_ms: int | None = None

    @property
    def gateway_ok(self) -> bool | None:
        return None if self.part is None else True


@dataclass(frozen=True)
class RetryLater:
    failure: Failure
    delay_ms: int


@dataclass(frozen=True)
class Failed:
    failure: Failure
    dead_letter: bool


@dataclass(frozen=True)
class Interrupted:
    reason: str


@dataclass(frozen=True)
class Lost:
    reason: str


Outcome = Completed | RetryLater | Failed | Interrupted | Lost
