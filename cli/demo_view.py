"""What the demo shows: its jobs, live on a terminal, one line for each change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from convertq.cli.colours import STATUSES
from convertq.queue.database.database import Database
from convertq.queue.explain import State, explain
from convertq.queue.facts import Facts, LastError
from convertq.queue.jobs import list_demo_jobs
from convertq.queue.status import JobStatus
from convertq.queue.wait import has_ended
from rich.console import Console
from rich.live import Live
from rich.table import Table

#: For a job that had an error and did not fail.
AFTER_ERROR = {
    State.RETRYING: "will try again:",
    State.QUEUED: "will try again:",
    State.PROCESSING: "tries again:",
    State.COMPLETE: "tried again:",
}
#: The demo's queue is never paused, and has workers.
RUNNING_QUEUE = {"breaker": "closed", "active_servers": 1}
MAX_ATTEMPTS = 3
Rows = list[dict[str, Any]]


def table(rows: Rows) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("document", min_width=max((len(row["name"]) for row in rows), default=0))
    shown.add_column("status", min_width=len(JobStatus.PROCESSING))
    shown.add_column("tries", justify="right", min_width=len("tries"))
    shown.add_column("seconds", justify="right", min_width=len("seconds"))
    shown.add_column("what happened", overflow="fold")
    for row in rows:
        status = f"[{STATUSES.get(row['status'], 'white')}]{row['status']}[/]"
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.1f}"
        shown.add_row(row["name"], status, str(row["attempt_count"]), seconds, row["words"])
    return shown


def words(row: dict[str, Any]) -> str:
    """The last error stays visible after the retry that succeeded."""
    last = row["last_error"]
    found = explain(Facts(row, RUNNING_QUEUE, MAX_ATTEMPTS, LastError(last["code"], last["message"]) if last else None))
    if found.state in AFTER_ERROR:
        return f"{AFTER_ERROR[found.state]} {found.reason}" if found.reason else ""
    return f"{found.error_code}: {found.reason}" if found.error_code else ""


def read(database: Database, jobs: dict[UUID, str]) -> Rows:
    rows = list_demo_jobs(database, list(jobs))
    return [row | {"name": jobs[row["id"]], "words": words(row)} for row in rows]


@contextmanager
def showing(console: Console) -> Iterator[Callable[[Rows], None]]:
    """The function that shows the rows as they are now."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda rows: live.update(table(rows), refresh=True)
        return
    seen: dict[UUID, str] = {}

    def print_changes(rows: Rows) -> None:
        for row in rows:
            line = f"{row['name']}: {row['status']}" + (f" ({row['words']})" if row["words"] else "")
            if seen.get(row["id"]) != line:
                seen[row["id"]] = line
                console.print(line, markup=False, soft_wrap=True)

    yield print_changes


def watch(database: Database, jobs: dict[UUID, str], console: Console, timeout: float) -> Rows:
    """Shows the jobs until every one has ended; returns the rows as they are then."""
    deadline = time.monotonic() + timeout
    with showing(console) as show:
        while True:
            rows = read(database, jobs)
            show(rows)
            if all(map(has_ended, rows)) or time.monotonic() > deadline:
                return rows
            time.sleep(0.1)
