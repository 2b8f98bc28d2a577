"""Waiting for jobs to end, with a progress bar on a terminal and a line for each job elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import click
from convertq.cli.context import configuration
from convertq.cli.exit_code import ExitCode
from convertq.cli.table import columns, cut, terminal_width
from convertq.worker.db import Database

TERMINAL = frozenset({"complete", "failed"})
POLL_FIRST, POLL_MOST = 0.2, 1.0  # s
BAR = 20  # columns
#: a job that is `uploaded` waits for others; `submit` never leaves it so for another reason
WORDS = {"uploaded": "waiting for others"}
Row = dict[str, Any]
Listener = Callable[[Row], None]


def wait_for_jobs(
    database: Database, ids: Sequence[UUID], timeout: float | None = None, ended: Listener = lambda row: None
) -> dict[UUID, Row]:
    """The last row of each job that exists, when all have ended or the time is over; each end is told once."""
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    rows: dict[UUID, Row] = {}
    told: set[UUID] = set()
    pause = POLL_FIRST
    with Bar(len(ids)) as bar:
        while True:
            rows = {row["id"]: row for row in database.run("get_statuses", ids=list(ids))}
            news = [row for job_id, row in rows.items() if row["status"] in TERMINAL and job_id not in told]
            for row in news:
                ended(row)
                told.add(row["id"])
            bar.show(rows, breaker_of(database) if bar.is_seen else "closed")
            left = deadline - time.monotonic()
            if all(row["status"] in TERMINAL for row in rows.values()) or left <= 0:
                return rows
            pause = POLL_FIRST if news else min(POLL_MOST, pause * 1.5)
            time.sleep(min(pause, left))


def breaker_of(database: Database) -> str:
    hold = database.run("get_hold", heartbeat_timeout=configuration().worker_heartbeat_timeout_sec)[0]
    return str(hold["breaker"])


def verdict(rows: Sequence[Row]) -> ExitCode:
    return ExitCode.DONE if all(row["status"] == "complete" for row in rows) else ExitCode.FAILED


class Bar:
    """On stderr, which leaves stdout to the ids; nothing at all where that is no terminal.

    Drawn by hand with nothing but a carriage return, which every terminal knows.
    """

    def __init__(self, jobs: int) -> None:
        self._whole, self._done = 100 * jobs, 0
        self.is_seen = sys.stderr.isatty()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.is_seen:
            click.echo(err=True)

    def show(self, rows: dict[UUID, Row], breaker: str) -> None:
        """A new attempt begins anew, and a bar goes forward only."""
        if not self.is_seen:
            return
        done = sum(100 if row["status"] in TERMINAL else row["percent"] or 0 for row in rows.values())
        self._done = max(self._done, done)
        room = (terminal_width(sys.stderr) or 80) - 1  # in the last column some terminals go to the next line
        line = cut(f"{bar(self._done, self._whole)}  {what_they_do(list(rows.values()), breaker)}", room)
        click.echo(f"\r{line}{' ' * (room - columns(line))}", nl=False, err=True)


def bar(done: int, whole: int) -> str:
    return f"  [{'#' * (BAR * done // whole):-<{BAR}}] {100 * done // whole:>3}%"


def what_they_do(rows: Sequence[Row], breaker: str) -> str:
    """`1 of 4: 2 converting, 1 queued, breaker open`."""
    ended = sum(row["status"] in TERMINAL for row in rows)
    doing = Counter(row["step"] or row["status"] for row in rows if row["status"] not in TERMINAL)
    words = [f"{number} {WORDS.get(what, what)}" for what, number in doing.items()]
    if "queued" in doing and breaker != "closed":
        words.append("breaker open")
    return f"{ended} of {len(rows)}{': ' if words else ''}{', '.join(words)}"
