"""What the demo shows: jobs as they move, live on a terminal, one line per change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from convertq.worker.db import Database
from rich.console import Console
from rich.live import Live
from rich.table import Table

COLOURS = {"queued": "yellow", "processing": "cyan", "complete": "green", "failed": "red"}
TERMINAL = frozenset({"complete", "failed"})
AFTER_ERROR = {"queued": "will try again:", "processing": "tries again:", "complete": "tried again:"}
Rows = list[dict[str, Any]]


def table(rows: Rows) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("document", min_width=max((len(row["name"]) for row in rows), default=0))
    shown.add_column("status", min_width=len("processing"))
    shown.add_column("tries", justify="right", min_width=len("tries"))
    shown.add_column("seconds", justify="right", min_width=len("seconds"))
    shown.add_column("what happened", overflow="fold")
    for row in rows:
        status = f"[{COLOURS.get(row['status'], 'white')}]{row['status']}[/]"
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.1f}"
        shown.add_row(row["name"], status, str(row["attempt_count"]), seconds, row["words"])
    return shown


def words(row: dict[str, Any]) -> str:
    """The last error stays to be seen after the retry that got over it."""
    if row["status"] == "failed":
        return f"{row['error_code']}: {row['error_message']}"
    if row["last_error"]:
        return f"{AFTER_ERROR[row['status']]} {row['last_error']}"
    return ""


def read(database: Database, jobs: dict[UUID, str]) -> Rows:
    rows = database.run("list_demo_jobs", ids=list(jobs))
    return [row | {"name": jobs[row["id"]], "words": words(row)} for row in rows]


@contextmanager
def showing(console: Console) -> Iterator[Callable[[Rows], None]]:
    """How to show a new state of things."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda rows: live.update(table(rows), refresh=True)
        return
    seen: dict[UUID, str] = {}

    def say(rows: Rows) -> None:
        for row in rows:
            line = f"{row['name']}: {row['status']}" + (f" ({row['words']})" if row["words"] else "")
            if seen.get(row["id"]) != line:
                seen[row["id"]] = line
                console.print(line, markup=False, soft_wrap=True)

    yield say


def watch(database: Database, jobs: dict[UUID, str], console: Console, timeout: float) -> Rows:
    """Until every job is complete or failed; the rows as they are then."""
    deadline = time.monotonic() + timeout
    with showing(console) as show:
        while True:
            rows = read(database, jobs)
            show(rows)
            if all(row["status"] in TERMINAL for row in rows) or time.monotonic() > deadline:
                return rows
            time.sleep(0.1)
