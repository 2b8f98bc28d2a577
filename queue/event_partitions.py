"""The partitions of job_events: some are kept ahead of the writers, and those that are old can be dropped."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from convertq.queue.database.database import Database
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_random

#: Partitions after the one that events go to now. A backup keeps new ones from being created while it runs: three
#: last for two hours at 1,000 jobs a second, and what comes after them goes to the default partition.
AHEAD = 3
LONGEST_PAUSE_SECONDS = 0.5
MADE_OR_BEGUN = ("made", "begun")


@dataclass(frozen=True)
class EventPartition:
    name: str
    first_id: int
    last_id: int
    is_full: bool  # no event goes there any more
    ends_old: bool  # its last event is older than the retention, or it is empty
    filled_fast: bool


def make_event_partitions(database: Database, seconds: float = 0.0) -> int:
    """Creates the partitions that are missing and returns how many were created.

    When none is missing and the current one has been in use for 15 days, events go to the next one from then on.
    Locks that other sessions hold are tried again until the time is up. A user without the right creates none:
    events never need it, because they go to the default partition, and `doctor` reports that partitions are missing.
    """
    made = 0
    try:
        while (outcome := _when_unlocked(database, seconds, "make_event_partition", ahead=AHEAD)) in MADE_OR_BEGUN:
            made += outcome == "made"
    except psycopg.errors.InsufficientPrivilege:
        return made
    return made


def drop_event_partition(database: Database, name: str, unchanged_since: str, seconds: float) -> str:
    """Returns `dropped`, `kept` or `locked`."""
    limits = {"name": name, "unchanged_since": unchanged_since}
    return _when_unlocked(database, seconds, "drop_event_partition", **limits)


def list_event_partitions(database: Database, days: int, filled_within: int) -> list[EventPartition]:
    rows = database.run("list_event_partitions", days=days, filled_within=filled_within)
    return [EventPartition(**row) for row in rows]


def _when_unlocked(database: Database, seconds: float, statement: str, **parameters: object) -> str:
    """Writers queue behind a request for these locks: each request is short, and the pauses are longer."""
    retrying = Retrying(
        retry=retry_if_result(lambda outcome: outcome == "locked"),
        wait=wait_random(0.1, LONGEST_PAUSE_SECONDS),
        stop=stop_after_delay(seconds),
        retry_error_callback=lambda state: "locked",
    )
    return str(retrying(lambda: database.run(statement, **parameters)[0]["outcome"]))
