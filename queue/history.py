"""The last minutes of the queue, one by one: what `convertq top` and the operator's page draw."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from convertq.queue.counters import Counters
from convertq.queue.database.database import Database
from convertq.queue.status import ACTIVE

#: Of each kind of call and minute: enough for a p95 that does not jump, few enough to be read every half minute.
CALLS_MEASURED = 100
MINUTES = 60
MOST_MINUTES = 180


def get_history(database: Database, minutes: int) -> dict[str, Any]:
    """Its keys are public: the operator's API sends them. The present minute is the last, and not over yet."""
    measured = {row["at"]: row for row in database.run("measure_minutes", minutes=minutes, calls=CALLS_MEASURED)}
    return {
        "minutes": [
            {
                **row,
                "gateway_p50_ms": measured[row["at"]]["p50"] if row["at"] in measured else None,
                "gateway_p95_ms": measured[row["at"]]["p95"] if row["at"] in measured else None,
            }
            for row in last_minutes(database, minutes)
        ]
    }


def last_minutes(database: Database, minutes: int) -> list[dict[str, Any]]:
    """The present one last: how jobs ended in it, and the `depth` at its end."""
    ended = database.run("count_minutes", minutes=minutes)
    depths = _depths(database, ended, minutes)
    return [{**row, "depth": depths[row["at"]]} for row in ended]


def _depths(database: Database, ended: list[dict[str, Any]], minutes: int) -> dict[datetime, int]:
    """How many jobs were unfinished at the end of each minute, counted backwards from now.

    Before a minute there were as many as after it, with those that ended in it and without those that arrived.
    """
    arrivals = {row["at"]: row["jobs"] for row in database.run("count_arrivals", minutes=minutes)}
    counters = Counters(database)
    depth = sum(counters("jobs", status) for status in ACTIVE)
    depths = {}
    for row in reversed(ended):
        depths[row["at"]] = max(depth, 0)
        depth += row["completed"] + row["failed"] + row["cancelled"] - arrivals.get(row["at"], 0)
    return depths
