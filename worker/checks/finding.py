"""What a check returns, and what it is given to look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from convertq.worker.config import Config
from convertq.worker.db import Database
from convertq.worker.files import Files


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True)
class Limits:
    """Seconds and rows beyond which something is not as it should be."""

    idle_transaction: float = 300
    long_transaction: float = 300
    queue_patience: float = 600
    clock_difference: float = 5
    latency: float = 0.1
    dead_rows: int = 10_000
    large_table: int = 10_000
    sample: int = 1000


@dataclass
class Look:
    """All that a check may look at. Those that need the database are not asked without one."""

    config: Config
    files: Files
    connection: Database | None = None
    server: Mapping[str, Any] = field(default_factory=dict)  # a row of inspect_server
    latency: float = 0.0  # s, of the shortest answer
    asked_at: float = 0.0  # by this host's clock, in the middle of that answer
    limits: Limits = Limits()
    clock: Callable[[], float] = time.time

    @property
    def database(self) -> Database:
        assert self.connection is not None
        return self.connection


@dataclass(frozen=True)
class Finding:
    check: str
    state: State
    what: str
    remedy: str = ""
    fix: Callable[[Look], str] | None = None  # mends it, and says what it did
    fixed: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding(check, State.OK, what)


def warn(check: str, what: str, remedy: str, fix: Callable[[Look], str] | None = None) -> Finding:
    return Finding(check, State.WARN, what, remedy, fix)


def bad(check: str, what: str, remedy: str, fix: Callable[[Look], str] | None = None) -> Finding:
    return Finding(check, State.BAD, what, remedy, fix)
