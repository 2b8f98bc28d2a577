"""The counters in the database: kept up with the events by whoever has a moment, and read exactly at any moment."""

from __future__ import annotations

import time

from convertq.worker.db import Database

STATUSES = ("uploaded", "queued", "processing", "complete", "failed")
#: events at once, and seconds in all: a supervisor folds between two looks at its workers
BATCH = 10_000
TIME_TO_FOLD = 0.25


def fold_counters(database: Database, time_to_fold: float = TIME_TO_FOLD) -> int:
    """Adds events to the counters until all are counted, somebody else does it, or time is up; returns how many."""
    ends = time.monotonic() + time_to_fold
    folded = 0
    while True:
        row = database.one("fold_counters", batch=BATCH)
        if row is None:
            return folded
        if row["is_restored"]:
            database.run("recount_jobs")
        folded += int(row["events"])
        if row["events"] < BATCH or time.monotonic() > ends:
            return folded


class Counters:
    """As of one moment; what was never counted is zero."""

    def __init__(self, database: Database) -> None:
        rows = database.run("get_counters")
        self._values: dict[tuple[str, str], int] = {(row["name"], row["label"]): row["value"] for row in rows}

    def __call__(self, name: str, label: str = "") -> int:
        return self._values.get((name, label), 0)

    def by_label(self, name: str) -> dict[str, int]:
        return {label: value for (of, label), value in sorted(self._values.items()) if of == name}
