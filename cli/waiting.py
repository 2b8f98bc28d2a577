"""Waiting for jobs to end, with a progress bar on a terminal and a line for each job elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import click
from convertq.cli.exit_code import ExitCode
from convertq.cli.table import cut
from convertq.worker.db import Database

TERMINAL = frozenset({"complete", "failed"})
POLL_FIRST, POLL_MOST = 0.2, 1.0  # s
BAR, AROUND = 20, 33  # columns: of the bar, and of it with what click puts around it
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
            bar.show(rows, database.run("get_hold")[0]["breaker"] if bar.is_seen else "closed")
            left = deadline - time.monotonic()
            if all(row["status"] in TERMINAL for row in rows.values()) or left <= 0:
                return rows
            pause = POLL_FIRST if news else min(POLL_MOST, pause * 1.5)
            time.sleep(min(pause, left))


def verdict(rows: Sequence[Row]) -> ExitCode:
    return ExitCode.DONE if all(row["status"] == "complete" for row in rows) else ExitCode.FAILED


class Bar:
    """On stderr, which leaves stdout to the ids; nothing at all where that is no terminal."""

    def __init__(self, jobs: int) -> None:
        self._bar: Any = None
        self._text = ""
        if sys.stderr.isatty():
            self._bar = click.progressbar(
                length=100 * jobs, file=sys.stderr, show_eta=False, width=BAR, item_show_func=lambda _: self._text
            )

    @property
    def is_seen(self) -> bool:
        return self._bar is not None

    def __enter__(self) -> Bar:
        if self._bar:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar:
            self._bar.__exit__(*error)

    def show(self, rows: dict[UUID, Row], breaker: str) -> None:
        if self._bar is None:
            return
        done = sum(100 if row["status"] in TERMINAL else row["percent"] or 0 for row in rows.values())
        room = shutil.get_terminal_size().columns - AROUND
        self._text = cut(what_they_do(list(rows.values()), breaker), max(10, room))
        self._bar.update(max(0, done - self._bar.pos))  # a new attempt begins anew, and a bar goes forward only
        self._bar.render_progress()  # also when only the words have changed


def what_they_do(rows: Sequence[Row], breaker: str) -> str:
    """`1 of 4: 2 converting, 1 queued (breaker open)`."""
    ended = sum(row["status"] in TERMINAL for row in rows)
    doing = Counter(row["step"] or row["status"] for row in rows if row["status"] not in TERMINAL)
    words = [f"{number} {WORDS.get(what, what)}" for what, number in doing.items()]
    if "queued" in doing and breaker != "closed":
        words.append("breaker open")
    return f"{ended} of {len(rows)}{': ' if words else ''}{', '.join(words)}"
