"""Pauses by hand: of a gateway, of an owner, of one owner at one gateway, or of everything.

A pause is in force for every claim that begins after its commit. Then the queued jobs of a paused owner are moved out
of the claim's index, slice by slice, so that other claims do not read them; after a resume they are moved back. A
supervisor continues where a command that was killed has stopped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from convertq.queue.database.database import Database
from convertq.queue.queue_events import Operator, QueueEventType, record, record_operator
from convertq.queue.scan_budget import START
from psycopg.rows import DictRow

SLICE_JOBS = 1000  # as in pause_jobs
#: How many waiting hosts a resume notifies. Their workers wake the others if there are more jobs.
WOKEN_HOSTS = 8


class Scope(NamedTuple):
    """Which jobs a pause concerns: those of the gateway and of the owner that it names."""

    gateway: str | None = None  # None: of all
    owner: str | None = None


def describe_scope(scope: Scope) -> str:
    names = [f"gateway {scope.gateway}" if scope.gateway else "", f"owner {scope.owner}" if scope.owner else ""]
    if all(names):
        return f"owner {scope.owner} at gateway {scope.gateway}"
    return "".join(names) or "everything"


def list_pauses(database: Database) -> list[DictRow]:
    """The oldest first. The keys are public: gateway, owner, by, at."""
    return database.run("list_pauses")


def start_pause(database: Database, scope: Scope, operator: Operator) -> bool:
    """In force for claims that begin after this. False: it was paused already."""
    with database.transaction():
        is_new = database.one("insert_pause", gateway=scope.gateway, owner=scope.owner, by=operator.name) is not None
        if is_new:
            _record(database, QueueEventType.PAUSED, "pause", scope, operator)
    return is_new


def end_pauses(database: Database, scope: Scope, operator: Operator, *, every: bool = False) -> list[Scope]:
    """Which pauses have ended. In force for claims that begin after this, and for jobs that are queued after it."""
    with database.transaction():
        rows = database.run("delete_pauses", every=every, gateway=scope.gateway, owner=scope.owner)
        ended = [Scope(row["gateway"], row["owner"]) for row in rows]
        for each in ended:
            _record(database, QueueEventType.RESUMED, "resume", each, operator)
    if ended:
        database.run("wake_servers", at_most=WOKEN_HOSTS)
    return ended


def _record(database: Database, event: QueueEventType, command: str, scope: Scope, operator: Operator) -> None:
    record(database, event, **scope._asdict(), by=operator.name)
    record_operator(database, operator, command, **scope._asdict())


# -- moving the jobs of owners --


@dataclass
class Sweep:
    """One pass over the claim's index, which moves the jobs of paused owners out of it."""

    ids: Sequence[int]  # of the pauses that were in force when it began
    began: datetime
    position: Mapping[str, Any] = field(default_factory=lambda: {**START.parameters, "route": ""})
    moved: int = 0

    def run(self, database: Database, seconds: float) -> bool:
        """Whether it has seen everything; False: the time is up."""
        ends = time.monotonic() + seconds
        while True:
            row = database.run("pause_jobs", **self.position, limit=SLICE_JOBS)[0]
            self.moved += row["moved"]
            if row["id"] is None:
                database.run("end_sweep", ids=list(self.ids), began=self.began)
                return True
            self.position = {
                "route": row["route"], "after_priority": row["priority"], "after_turn": row["turn"],
                "after_created_at": row["created_at"], "after_id": str(row["id"]),
            }  # fmt: skip
            if time.monotonic() > ends:
                return False


def start_sweep(database: Database) -> Sweep | None:
    """None: the jobs of all paused owners have been moved."""
    rows = database.run("find_pauses_to_sweep")
    return Sweep([row["id"] for row in rows], rows[0]["now"]) if rows else None


def move_paused_jobs(database: Database, seconds: float) -> int:
    """Moves the jobs of owners who were paused just now; returns how many. What is left, a supervisor moves."""
    sweep = start_sweep(database)
    if sweep is None:
        return 0
    sweep.run(database, seconds)
    return sweep.moved


@dataclass
class Resumption:
    """One pass over the paused jobs, which moves those back whose owner is not paused any more."""

    position: Mapping[str, Any] = field(default_factory=lambda: {"route": "", "owner": "", "created_at": "-infinity"})
    moved: int = 0

    def run(self, database: Database, seconds: float) -> bool:
        """Whether it has seen everything; False: the time is up."""
        ends, moved_before = time.monotonic() + seconds, self.moved
        while True:
            row = database.run("resume_jobs", **self.position)[0]
            self.moved += row["moved"]
            is_last = row["route"] is None
            if not is_last:
                self.position = {name: row[name] for name in self.position}
            if is_last or time.monotonic() > ends:
                break
        if self.moved > moved_before:
            database.run("wake_servers", at_most=WOKEN_HOSTS)
        return is_last


def move_resumed_jobs(database: Database, seconds: float) -> int:
    """Moves jobs back whose owner is not paused any more; returns how many. What is left, a supervisor moves."""
    resumption = Resumption()
    resumption.run(database, seconds)
    return resumption.moved
