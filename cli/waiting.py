"""Waiting for jobs to end, with a progress bar on a terminal and a line for each job elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import click
from convertq.cli.context import configuration
from convertq.cli.exit_code import ExitCode
from convertq.cli.table import columns, cut, terminal_width
from convertq.queue.database.database import Database
from convertq.queue.queue_state import get_queue_state
from convertq.queue.status import JobStatus
from convertq.queue.wait import has_ended, poll_statuses

BAR_COLUMNS = 20
#: A job that is `uploaded` waits for others; `submit` never leaves it so for another reason.
WORDS = {JobStatus.UPLOADED: "waiting for others"}
Row = dict[str, Any]
Listener = Callable[[Row], None]


def wait_for_jobs(
    database: Database, ids: Sequence[UUID], timeout: float | None = None, ended: Listener = lambda row: None
) -> dict[UUID, Row]:
    """The last row of each job that exists, when all have ended or the time is over; each end is reported once."""
    rows: dict[UUID, Row] = {}
    reported: set[UUID] = set()
    with Bar(len(ids)) as bar:
        for rows in poll_statuses(database, ids, timeout):
            for row in rows.values():
                if has_ended(row) and row["id"] not in reported:
                    ended(row)
                    reported.add(row["id"])
            bar.show(rows, get_queue_state(database, configuration())["breaker"] if bar.is_seen else "closed")
    return rows


def verdict(rows: Sequence[Row]) -> ExitCode:
    return ExitCode.DONE if all(row["status"] == JobStatus.COMPLETE for row in rows) else ExitCode.FAILED


class Bar:
    """A progress bar on stderr, which leaves stdout to the ids. Nothing is drawn where stderr is not a terminal.

    It needs nothing but a carriage return, which every terminal knows.
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
        """The bar only moves forward, also when a new attempt starts from zero."""
        if not self.is_seen:
            return
        done = sum(100 if has_ended(row) else row["percent"] or 0 for row in rows.values())
        self._done = max(self._done, done)
        room = (terminal_width(sys.stderr) or 80) - 1  # in the last column some terminals go to the next line
        line = cut(f"{bar(self._done, self._whole)}  {what_they_do(list(rows.values()), breaker)}", room)
        click.echo(f"\r{line}{' ' * (room - columns(line))}", nl=False, err=True)


def bar(done: int, whole: int) -> str:
    return f"  [{'#' * (BAR_COLUMNS * done // whole):-<{BAR_COLUMNS}}] {100 * done // whole:>3}%"


def what_they_do(rows: Sequence[Row], breaker: str) -> str:
    """`1 of 4: 2 converting, 1 queued, breaker open`."""
    ended = sum(map(has_ended, rows))
    doing = Counter(row["step"] or row["status"] for row in rows if not has_ended(row))
    words = [f"{number} {WORDS.get(what, what)}" for what, number in doing.items()]
    if JobStatus.QUEUED in doing and breaker != "closed":
        words.append("breaker open")
    return f"{ended} of {len(rows)}{': ' if words else ''}{', '.join(words)}"
