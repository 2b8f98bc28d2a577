"""What a check returns, and what it is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from convertq.queue.config import Config
from convertq.queue.database.database import Database

if TYPE_CHECKING:  # a store returns findings
    from convertq.queue.store.protocol import Store


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True)
class Limits:
    """A check complains beyond these limits; it examines at most so many jobs."""

    idle_transaction_seconds: float = 300
    long_transaction_seconds: float = 300
    queue_wait_seconds: float = 600
    clock_difference_seconds: float = 5
    latency_seconds: float = 0.1
    dead_rows: int = 10_000
    large_table_rows: int = 10_000
    sample_jobs: int = 1000


@dataclass
class CheckContext:
    """All that a check may use. Checks that need the database do not run without one."""

    config: Config
    store: Store
    connection: Database | None = None
    server: Mapping[str, Any] = field(default_factory=dict)  # a row of inspect_server
    latency_seconds: float = 0.0  # between inspect_server and its answer
    measured_at: float = 0.0  # by this host's clock, in the middle of that answer
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
    fix: Callable[[CheckContext], str] | None = None  # repairs it, and returns what it did
    fixed: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding(check, State.OK, what)


def warn(check: str, what: str, remedy: str, fix: Callable[[CheckContext], str] | None = None) -> Finding:
    return Finding(check, State.WARN, what, remedy, fix)


def bad(check: str, what: str, remedy: str, fix: Callable[[CheckContext], str] | None = None) -> Finding:
    return Finding(check, State.BAD, what, remedy, fix)
