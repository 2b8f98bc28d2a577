"""The log of the queue: what happened to it as a whole, and who changed it by hand."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from convertq.queue.database.database import Database
from convertq.queue.quantities import counted
from psycopg.rows import DictRow

SHOWN_EVENTS = 50
#: An event names so many jobs at most; how many they were is always recorded.
NAMED_JOBS = 10
FINGERPRINT_DIGITS = 8
EVENTS_PER_PAGE = 5000


class QueueEventType(StrEnum):
    """In the database: the constraint queue_event_type_is_known."""

    BREAKER_OPENED = "breaker_opened"
    BREAKER_CLOSED = "breaker_closed"
    PAUSED = "paused"
    RESUMED = "resumed"
    HELD = "held"  # a host claims nothing, because of its disk or storage
    RELEASED = "released"
    LIMIT_CHANGED = "limit_changed"
    OPERATOR = "operator"  # somebody changed something by hand


@dataclass(frozen=True)
class Operator:
    """Who changes something by hand."""

    name: str


def operator_at_terminal() -> Operator:
    """The user of this process and the host. Under sudo, the user who called it: root says nothing about a person."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container the user may have no name
        user = str(os.getuid())
    caller = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return Operator(f"{caller or user}@{socket.gethostname()}")


def operator_with_token(token: str) -> Operator:
    """The fingerprint tells tokens apart, and nobody can use it as one."""
    return Operator(f"token {hashlib.sha256(token.encode()).hexdigest()[:FINGERPRINT_DIGITS]}")


def record_operator(database: Database, operator: Operator, command: str, **details: Any) -> None:
    """Called in the transaction that makes the change."""
    record(database, QueueEventType.OPERATOR, command=command, by=operator.name, **details)


def record(database: Database, event_type: QueueEventType, **meta: Any) -> None:
    known = {name: value for name, value in meta.items() if value is not None}
    database.run("record_queue_event", event_type=event_type, meta=json.dumps(known, default=str))


def name_jobs(ids: Iterable[object]) -> dict[str, Any]:
    """The details of an event that concerns these jobs."""
    names = [str(job_id) for job_id in ids]
    return {"jobs": len(names), "ids": names[:NAMED_JOBS]}


def list_queue_events(database: Database, limit: int = SHOWN_EVENTS) -> list[DictRow]:
    """Newest first: id, event_type, at, meta."""
    return database.run("list_queue_events", limit=limit)


def remove_queue_events(database: Database, days: int, *, dry_run: bool) -> Iterator[DictRow]:
    """Removes the events that are older than so many days: id and at of each. A dry run lists one page."""
    while True:
        with database.transaction():
            rows = database.run("find_old_queue_events", days=days, limit=EVENTS_PER_PAGE)
            if rows and not dry_run:
                database.run("allow_cleanup")
                database.run("delete_queue_events", ids=[row["id"] for row in rows])
        yield from rows
        if dry_run or len(rows) < EVENTS_PER_PAGE:
            return


def describe(event: Mapping[str, Any]) -> str:
    """The details of an event in words, for the terminal and the page; a key without words is shown as it is."""
    meta = event["meta"]
    known = [render(meta[name]) for name, render in WORDS.items() if name in meta]
    others = [f"{name} {value}" for name, value in meta.items() if name not in WORDS]
    return ", ".join([words for words in known if words] + others)


#: In the order of the sentence.
WORDS: dict[str, Any] = {
    "command": str,
    "versions": str,
    "gateway": lambda name: f"gateway {name}",
    "owner": lambda name: f"owner {name}",
    "jobs": lambda number: counted(number, "job") if isinstance(number, int) else str(number),
    "ids": lambda ids: "",  # `jobs` has their number
    "max_calls": lambda number: f"limit {number}",
    "most_calls": lambda number: f"of at most {number}",
    "before": lambda number: f"before: {number}",
    "server": lambda name: f"on {name}",
    "reason": str,
    "by_hand": lambda by_hand: "by hand" if by_hand else "",
    "open_seconds": lambda seconds: f"after {seconds:.0f} s" if isinstance(seconds, (int, float)) else str(seconds),
    "by": lambda name: f"by {name}",
}
