"""Retention: everything that has been kept for long enough is removed, in batches, so that a crash loses nothing.

A file is removed while its job's row is locked, and the row is updated before the lock ends. A session that queues the
job again (a retry, the same upload) waits for that lock, and then sees that the file is gone. A removal after the
commit could delete the file that a new upload has just stored. A crash between the two leaves a row that names a
missing file; the next run finds the row again, finds no file, and updates the row. Only finished jobs are ever locked,
so that no claim waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.database.timestamps import BEFORE_ALL
from convertq.queue.event_retention import EventRetention
from convertq.queue.jobs import get_statuses
from convertq.queue.queue_events import Operator, record_operator, remove_queue_events
from convertq.queue.removal import BATCH_JOBS, JobRemoval
from convertq.queue.status import TERMINAL
from convertq.queue.store.protocol import Store, StoredFile
from psycopg.rows import DictRow

BEGINNING: tuple[datetime, UUID] = (BEFORE_ALL, UUID(int=0))


class Kind(StrEnum):
    JOB = "job"
    SOURCE = "source"
    RESULT = "result"
    EVENT = "event"
    ORPHAN = "orphan"
    TEMP = "temp"


@dataclass(frozen=True)
class Item:
    """One thing that was removed, or would be; with an error, one that could not be removed."""

    kind: Kind
    name: str  # a file's location, the id of an event or a job, or the name of a partition of events
    job_id: UUID | None
    since: datetime | None = None  # when the job ended, the result expired, the event happened, the file was written
    bytes: int = 0
    error: str | None = None
    count: int = 1  # the events of a partition


class ExpiredFile(NamedTuple):
    """A file to remove, its job, and since when it could be removed."""

    location: str
    job_id: UUID
    since: datetime


class Retention:
    def __init__(
        self,
        database: Database,
        store: Store,
        config: Config,
        operator: Operator | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        self._database, self._store, self._config, self._dry_run = database, store, config, dry_run
        self._operator = operator
        self._removal = JobRemoval(database, store, dry_run=dry_run)

    def run(self) -> Iterator[Item]:
        """Raises FileNotFoundError when the store is not there."""
        self._store.require()
        if self._operator and not self._dry_run:
            record_operator(self._database, self._operator, "cleanup")
        gone = set[UUID | None]()  # A dry run does not remove these jobs, and must not list their files and events too.
        for item in self.expire_jobs():
            if self._dry_run and not item.error:
                gone.add(item.job_id)
            yield item
        yield from (item for item in self._clean_kept_jobs() if item.job_id not in gone)

    def _clean_kept_jobs(self) -> Iterator[Item]:
        """Removes what the jobs that are kept no longer need, and files that belong to no job."""
        yield from self.expire_sources()
        yield from self.expire_results()
        yield from self.remove_events()
        yield from self.remove_orphans()
        yield from self.remove_temporary_files()

    # -- whole jobs --

    def expire_jobs(self) -> Iterator[Item]:
        if self._config.retention_jobs_days:
            for status in TERMINAL:
                yield from self._expire_jobs_in(status)

    def _expire_jobs_in(self, status: str) -> Iterator[Item]:
        at, job_id = BEGINNING
        while True:
            with self._database.transaction():
                limits = {"status": status, "days": self._config.retention_jobs_days, "limit": BATCH_JOBS}
                rows = self._database.run("lock_expired_jobs", after_at=at, after_id=job_id, **limits)
                items = self._remove_jobs(rows)
            yield from items
            if len(rows) < BATCH_JOBS:
                return
            at, job_id = rows[-1]["created_at"], rows[-1]["id"]

    def _remove_jobs(self, rows: list[DictRow]) -> list[Item]:
        """The dependants are read while the rows are locked: a new dependant of one of them waits for that lock."""
        needed = {row["id"] for row in self._database.run("find_dependants", ids=[row["id"] for row in rows])}
        since = {row["id"]: row["at"] for row in rows}
        removed = self._removal.remove([row for row in rows if row["id"] not in needed])
        return [
            Item(Kind.JOB, str(job_id), job_id, since[job_id], each.bytes, each.error)
            for job_id, each in removed.items()
        ]

    # -- sources and results that have expired, found by their rows --

    def expire_sources(self) -> Iterator[Item]:
        if days := self._config.retention_uploads_days:
            statements = "lock_expired_sources", "forget_sources"
            yield from self._expire(
                Kind.SOURCE, *statements, lambda row: self._store.source_location(row["id"]), days=days
            )

    def expire_results(self) -> Iterator[Item]:
        if self._config.retention_results_days:
            statements = "lock_expired_results", "forget_results"
            yield from self._expire(
                Kind.RESULT, *statements, lambda row: self._store.result_location(row["id"], row["result_path"])
            )

    def _expire(
        self, kind: Kind, find: str, forget: str, locate: Callable[[DictRow], str], **limits: int
    ) -> Iterator[Item]:
        at, job_id = BEGINNING
        while True:
            with self._database.transaction():
                rows = self._database.run(find, after_at=at, after_id=job_id, limit=BATCH_JOBS, **limits)
                items = self._remove(kind, [ExpiredFile(locate(row), row["id"], row["at"]) for row in rows])
                self._update(forget, [item.job_id for item in items if not item.error])
            yield from items  # after the commit, because the caller may be slow
            if len(rows) < BATCH_JOBS:
                return
            at, job_id = rows[-1]["at"], rows[-1]["id"]

    def _update(self, statement: str, ids: list[Any]) -> None:
        if ids and not self._dry_run:
            self._database.run(statement, ids=ids)

    # -- events --

    def remove_events(self) -> Iterator[Item]:
        days = self._config.retention_events_days
        for each in EventRetention(self._database, days, dry_run=self._dry_run).run():
            yield Item(Kind.EVENT, each.name, each.job_id, each.at, error=each.error, count=each.count)
        for event in remove_queue_events(self._database, days, dry_run=self._dry_run) if days else ():
            yield Item(Kind.EVENT, f"queue event {event['id']}", None, event["at"])

    # -- files that no row names, found by listing the store --

    def remove_orphans(self) -> Iterator[Item]:
        days = self._config.retention_uploads_days
        for batch in in_batches(self._store.list_sources()):
            of_jobs, orphans = self._divide_by_job(batch)
            yield from self._remove_old(Kind.ORPHAN, orphans)
            yield from self._remove_unneeded(Kind.SOURCE, "lock_leftover_sources", of_jobs, days=days)
        for batch in in_batches(self._store.list_results()):
            of_jobs, orphans = self._divide_by_job(batch)
            yield from self._remove_old(Kind.ORPHAN, orphans)
            yield from self._remove_orphan_results([file for file in of_jobs if file.is_old])

    def _divide_by_job(self, files: list[StoredFile]) -> tuple[list[StoredFile], list[StoredFile]]:
        """The files whose job exists, and the others."""
        existing = get_statuses(self._database, [file.job_id for file in files])
        of_jobs = [file for file in files if file.job_id in existing]
        return of_jobs, [file for file in files if file.job_id not in existing]

    def _remove_unneeded(self, kind: Kind, find: str, files: list[StoredFile], **limits: int) -> list[Item]:
        if not files:
            return []
        with self._database.transaction():
            rows = self._database.run(find, ids=[file.job_id for file in files], **limits)
            unneeded = {row["id"] for row in rows}
            return self._remove(kind, [_expired_file(file) for file in files if file.job_id in unneeded])

    def _remove_orphan_results(self, files: list[StoredFile]) -> list[Item]:
        """A job may have several results on object storage, of which its row names one."""
        if not files:
            return []
        ids, locations = [file.job_id for file in files], [file.location for file in files]
        with self._database.transaction():
            rows = self._database.run("lock_orphan_results", ids=ids, locations=locations)
            orphans = {row["location"] for row in rows}
            return self._remove(Kind.ORPHAN, [_expired_file(file) for file in files if file.location in orphans])

    def _remove_old(self, kind: Kind, files: list[StoredFile]) -> list[Item]:
        """An orphan has no row to lock. Only its age shows that no submission is about to commit it."""
        return self._remove(kind, [_expired_file(file) for file in files if file.is_old])

    def remove_temporary_files(self) -> Iterator[Item]:
        for batch in in_batches(file for file in self._store.list_temporary_files() if file.is_old):
            ids = [file.job_id for file in batch]
            running = {row["id"]: row["attempt"] for row in self._database.run("find_running_attempts", ids=ids)}
            ended = [file for file in batch if running.get(file.job_id, -1) != file.attempt]
            yield from self._remove_old(Kind.TEMP, ended)

    def _remove(self, kind: Kind, files: Sequence[ExpiredFile]) -> list[Item]:
        outcomes = self._store.remove([file.location for file in files], dry_run=self._dry_run)
        return [
            Item(kind, file.location, file.job_id, file.since, outcome.bytes, outcome.error)
            for file, outcome in zip(files, outcomes, strict=True)
        ]


def _expired_file(file: StoredFile) -> ExpiredFile:
    return ExpiredFile(file.location, file.job_id, file.written_at)


def in_batches(files: Iterable[StoredFile]) -> Iterator[list[StoredFile]]:
    batch: list[StoredFile] = []
    for file in files:
        batch.append(file)
        if len(batch) == BATCH_JOBS:
            yield batch
            batch = []
    if batch:
        yield batch
