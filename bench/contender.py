"""What every contender is given, and what is asked of it: tables, jobs, processes, and what it has completed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import psycopg

ROOT = Path(__file__).resolve().parent.parent
Submit = Callable[[UUID], float]


@dataclass(frozen=True)
class Place:
    """What a contender gets for a round: a database, a gateway, and directories of its own."""

    database_url: str
    gateway_url: str
    home: Path
    other_servers: list[int] = field(default_factory=list)  # pids of what a contender needs besides PostgreSQL

    @property
    def uploads(self) -> Path:
        return self.home / "uploads"

    @property
    def results(self) -> Path:
        return self.home / "results"

    @property
    def log(self) -> Path:
        return self.home / "log"

    def environment(self, **more: str) -> dict[str, str]:
        """The same names for every contender; of the caller's only what a program needs to start."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept, "PYTHONPATH": str(ROOT), "DATABASE_URL": self.database_url, "GATEWAY_URL": self.gateway_url,
            "UPLOADS_DIR": str(self.uploads), "RESULTS_DIR": str(self.results), **more,
        }  # fmt: skip


class Contender(ABC):
    name: str
    lacks = ""  # the guarantees of convertq that it does not give, as a sentence
    fewest_jobs = 0  # of a round: with less, what one process takes ahead would leave another without work

    def missing(self) -> str:
        """Why it cannot run on this machine; empty when it can."""
        return ""

    def serving(self, place: Place) -> AbstractContextManager[list[int]]:
        """What has to run besides PostgreSQL; the pids."""
        return nullcontext([])

    @abstractmethod
    def prepare(self, place: Place) -> None:
        """Makes its tables."""

    @abstractmethod
    def enqueue(self, place: Place, ids: Sequence[UUID]) -> None: ...

    @abstractmethod
    def submitting(self, place: Place) -> AbstractContextManager[Submit]:
        """For one job after another, over a connection that is open; returns the monotonic time just before."""

    @abstractmethod
    def commands(self, workers: int) -> list[list[str]]:
        """One for each process that is started."""

    def settings(self, place: Place, workers: int) -> dict[str, str]:
        """What its processes find in the environment besides `place.environment`."""
        return {}

    def fetch_results(self, place: Place) -> None:  # noqa: B027 - most have nothing to do
        """Puts the results into the directory where they are checked, if they are elsewhere."""

    @abstractmethod
    def completed(self, place: Place) -> int:
        """As its own table says."""


def count(place: Place, statement: bytes) -> int:
    with psycopg.connect(place.database_url, autocommit=True) as conn:
        row = conn.execute(statement).fetchone()
    assert row
    return int(row[0])


def count_uploads(place: Place) -> int:
    """How many jobs there were: for a queue that deletes a job when it is complete."""
    return len(os.listdir(place.uploads))  # noqa: PTH208
