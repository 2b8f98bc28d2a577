"""The last minutes of the queue, one by one: what the admin page draws."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from convertq.worker.counters import Counters
from convertq.worker.db import Database

UNFINISHED = ("uploaded", "queued", "processing")
#: of each kind and minute; enough for a p95 that does not jump, few enough to be read every half minute
CALLS_MEASURED = 100
MINUTES = 60
MOST_MINUTES = 180


def get_history(database: Database, minutes: int) -> dict[str, Any]:
    """Its keys are a promise: they are sent as JSON. The present minute is the last, and not over yet."""
    counted = database.run("count_minutes", minutes=minutes)
    measured = {row["at"]: row for row in database.run("measure_minutes", minutes=minutes, calls=CALLS_MEASURED)}
    depths = depth_at_the_end(database, counted, minutes)
    return {
        "minutes": [
            {
                **row,
                "gateway_p50_ms": measured[row["at"]]["p50"] if row["at"] in measured else None,
                "gateway_p95_ms": measured[row["at"]]["p95"] if row["at"] in measured else None,
                "depth": depths[row["at"]],
            }
            for row in counted
        ]
    }


def depth_at_the_end(database: Database, counted: list[dict[str, Any]], minutes: int) -> dict[datetime, int]:
    """How many jobs were unfinished when each minute ended: backwards from now, by who came and who left."""
    arrivals = {row["at"]: row["jobs"] for row in database.run("count_arrivals", minutes=minutes)}
    counters = Counters(database)
    depth = sum(counters("jobs", status) for status in UNFINISHED)
    depths = {}
    for row in reversed(counted):
        depths[row["at"]] = max(depth, 0)
        depth += row["completed"] + row["failed"] - arrivals.get(row["at"], 0)
    return depths
