"""Retention of events: whole partitions are dropped, and single events are deleted where a partition takes too long.

A partition goes when all of its events are old, belong to finished jobs and are aggregated into the counters. Until
then its old events stay if they have to wait for at most 16 days: a new partition is begun every 15 days, or earlier.
With a retention of less than 60 days they wait for a week at most. In any other partition, and in the default one, old
events are deleted in pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from convertq.queue.counters import aggregate_counters
from convertq.queue.database.database import Database
from convertq.queue.event_partitions import (
    EventPartition,
    drop_event_partition,
    list_event_partitions,
    make_event_partitions,
)

EVENTS_PER_PAGE = 5000
#: The scan ends after this many pages without an old event: the order of ids and of times may differ by that much.
MAX_YOUNG_PAGES = 20
AGGREGATION_SECONDS = 60.0
#: How long an old event may wait for the rest of its partition. A supervisor begins a new one every 15 days, with its
#: heartbeat; a day more is for a time without one. A wait should be short against the retention.
LONGEST_WAIT_DAYS = 16
LONGEST_WAIT_OF_SHORT_RETENTION_DAYS = 7
SHORT_RETENTION_DAYS = 60
#: Ids that one statement counts: it must end within the session's statement timeout, also when it reads from a disk.
IDS_PER_COUNT = 500_000
LOCKED_FOR_SECONDS = 20.0
NEWEST_ID = 2**63 - 1


@dataclass(frozen=True)
class RemovedEvents:
    """One event, or a whole partition; with an error, one that could not be removed."""

    name: str
    job_id: UUID | None = None
    at: datetime | None = None
    count: int = 1
    error: str | None = None


class EventRetention:
    def __init__(self, database: Database, days: int, *, dry_run: bool) -> None:
        self._database, self._days, self._dry_run = database, days, dry_run
        self._young_pages = 0

    def run(self) -> Iterator[RemovedEvents]:
        aggregate_counters(self._database, AGGREGATION_SECONDS)  # an event that is not counted yet must stay
        if not self._dry_run:
            make_event_partitions(self._database, LOCKED_FOR_SECONDS)
        after = 0
        for partition in self._partitions() if self._days else ():
            yield from self._remove_range(after, partition.first_id - 1)  # in the default partition, if there are any
            yield from self._remove_from(partition)
            after = partition.last_id
        if self._days:
            yield from self._remove_range(after, NEWEST_ID)

    def _partitions(self) -> list[EventPartition]:
        is_short = self._days < SHORT_RETENTION_DAYS
        longest_wait = LONGEST_WAIT_OF_SHORT_RETENTION_DAYS if is_short else LONGEST_WAIT_DAYS
        return list_event_partitions(self._database, self._days, longest_wait)

    def _remove_from(self, partition: EventPartition) -> Iterator[RemovedEvents]:
        if partition.is_full and partition.ends_old:
            yield from self._drop(partition)
        elif not (partition.is_full and partition.filled_fast):
            yield from self._remove_range(partition.first_id - 1, partition.last_id)

    def _drop(self, partition: EventPartition) -> Iterator[RemovedEvents]:
        """Drops it, or deletes its old events one by one where some have to stay. A dry run lists each event."""
        counted = self._count_if_old(partition.first_id - 1, partition.last_id)
        outcome = "kept"
        if counted and not self._dry_run:
            outcome = drop_event_partition(self._database, partition.name, counted.unchanged_since, LOCKED_FOR_SECONDS)
        if counted and outcome == "dropped":
            yield RemovedEvents(partition.name, count=counted.events)
        elif outcome == "locked":
            yield RemovedEvents(partition.name, error="another session keeps it locked; the next cleanup tries again")
        else:
            yield from self._remove_range(partition.first_id - 1, partition.last_id)

    def _count_if_old(self, first: int, last: int) -> CountedEvents | None:
        """None when an event is young, or belongs to a job that is not finished."""
        events, unchanged_since = 0, ""
        for after in range(first, last, IDS_PER_COUNT):
            upto = min(after + IDS_PER_COUNT, last)
            row = self._database.run("count_range", days=self._days, after=after, upto=upto)[0]
            if not row["are_old"]:
                return None
            events += row["events"]
            unchanged_since = unchanged_since or row["xmin"]
        row = self._database.run("has_unfinished_history", days=self._days, after=first, upto=last)[0]
        return None if row["found"] else CountedEvents(events, unchanged_since)

    def _remove_range(self, after: int, last: int) -> Iterator[RemovedEvents]:
        while after < last and self._young_pages < MAX_YOUNG_PAGES:
            limits = {"days": self._days, "after": after, "last": last, "limit": EVENTS_PER_PAGE}
            page = self._database.run("page_of_events", **limits)[0]
            if page["upto"] is None:
                return
            self._young_pages = 0 if page["has_old"] else self._young_pages + 1
            if page["has_old"]:
                yield from self._remove_page(after, page["upto"])
            after = page["upto"]

    def _remove_page(self, after: int, upto: int) -> list[RemovedEvents]:
        with self._database.transaction():
            rows = self._database.run("lock_old_events", days=self._days, after=after, upto=upto)
            if rows and not self._dry_run:
                self._database.run("allow_cleanup")
                self._database.run("delete_events", ids=[row["id"] for row in rows])
        return [RemovedEvents(str(row["id"]), row["job_id"], row["at"]) for row in rows]


@dataclass(frozen=True)
class CountedEvents:
    events: int
    unchanged_since: str  # what transactions from this one on have written is not counted
