"""The counters in the database: aggregated from the events now and then, and exact whenever they are read."""

from __future__ import annotations

import time

from convertq.queue.database.database import Database

#: A supervisor aggregates between two checks of its workers, so that a pass must be short.
BATCH_EVENTS = 10_000
AGGREGATE_SECONDS = 0.25


def aggregate_counters(database: Database, seconds: float = AGGREGATE_SECONDS) -> int:
    """Adds events to the counters until all are counted, another session does it, or the time is up.

    Returns how many events were added.
    """
    ends = time.monotonic() + seconds
    aggregated = 0
    database.run("mark_events")
    while True:
        row = database.one("aggregate_counters", batch=BATCH_EVENTS)
        if row is None:
            return aggregated
        if row["is_restored"]:
            database.run("recount_jobs")
        aggregated += int(row["events"])
        if row["events"] < BATCH_EVENTS or time.monotonic() > ends:
            return aggregated


def has_uncounted_events(database: Database, more_than: int) -> bool:
    """Whether more than so many events are not aggregated yet."""
    return bool(database.run("has_uncounted_events", events=more_than)[0]["has_more"])


class Counters:
    """All counters as of one time; one that was never counted is zero."""

    def __init__(self, database: Database) -> None:
        rows = database.run("get_counters")
        self._values: dict[tuple[str, str], int] = {(row["name"], row["label"]): row["value"] for row in rows}

    def __call__(self, name: str, label: str = "") -> int:
        return self._values.get((name, label), 0)

    def by_label(self, name: str) -> dict[str, int]:
        return {label: value for (of, label), value in sorted(self._values.items()) if of == name}
