"""Waiting for jobs to end, with a progress bar on a terminal and a line for each job elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
from convertq.cli.context import complain, configuration
from convertq.cli.estimate import find_last_done_by
from convertq.cli.exit_code import ExitCode
from convertq.cli.formatting import timestamp
from convertq.cli.table import columns, cut, terminal_width
from convertq.queue.database.database import Database
from convertq.queue.queue_state import get_queue_state
from convertq.queue.status import JobStatus
from convertq.queue.wait import has_ended, poll_statuses

BAR_COLUMNS = 20
FIRST_ESTIMATE_SECONDS = 1.0
ESTIMATE_EVERY_SECONDS = 2.0
#: A job that is `uploaded` waits for others; `submit` never leaves it so for another reason.
WORDS = {JobStatus.UPLOADED: "waiting for others"}
Row = dict[str, Any]
Listener = Callable[[Row], None]


def wait_for_jobs(
    database: Database,
    ids: Sequence[UUID],
    timeout: float | None = None,
    ended: Listener = lambda row: None,
    check: Callable[[], None] = lambda: None,
) -> dict[UUID, Row]:
    """The last row of each job that exists, when all have ended or the time is over; each end is reported once.

    `check` is called with each poll, and may raise to end the wait.
    """
    rows: dict[UUID, Row] = {}
    reported: set[UUID] = set()
    expected = ExpectedEnd(database)
    with Bar(len(ids)) as bar:
        for rows in poll_statuses(database, ids, timeout):
            check()
            for row in rows.values():
                if has_ended(row) and row["id"] not in reported:
                    ended(row)
                    reported.add(row["id"])
            expected.keep_up([row["id"] for row in rows.values() if not has_ended(row)], often=bar.is_seen)
            if bar.is_seen:
                bar.show(rows, get_queue_state(database, configuration())["breaker"], expected.in_words)
    return rows


class ExpectedEnd:
    """When all jobs will probably be done. A progress bar shows it; elsewhere it is one line on stderr, unless the jobs
    end right away."""

    def __init__(self, database: Database) -> None:
        self._database, self.in_words = database, ""
        self._look_at = time.monotonic() + FIRST_ESTIMATE_SECONDS

    def keep_up(self, unfinished: Sequence[UUID], *, often: bool) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + ESTIMATE_EVERY_SECONDS
        done_by = find_last_done_by(self._database, unfinished)
        self.in_words = f"probably done by {timestamp(done_by, datetime.now(UTC))}" if done_by else ""
        if self.in_words and not often:
            complain(f"convertq: {self.in_words}")
            self._look_at = float("inf")


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

    def show(self, rows: dict[UUID, Row], breaker: str, expected: str = "") -> None:
        """The bar only moves forward, also when a new attempt starts from zero."""
        done = sum(100 if has_ended(row) else row["percent"] or 0 for row in rows.values())
        self._done = max(self._done, done)
        room = (terminal_width(sys.stderr) or 80) - 1  # in the last column some terminals go to the next line
        words = ", ".join(part for part in (what_they_do(list(rows.values()), breaker), expected) if part)
        line = cut(f"{bar(self._done, self._whole)}  {words}", room)
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
