"""Retention: what has been kept for long enough, found in bounded batches and removed so that a crash loses nothing.

A file is removed while its job's row is locked, and the row is told before the lock ends. Whoever queues the job again
(a retry, the same upload) waits for that lock, and then sees what is true: unlinking after the commit could take away
the file that a new upload has just put there. A crash between the two leaves a row that names a missing file; the next
run finds the row again, finds no file, and tells the row. Finished jobs are all that is ever locked: no claim waits.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

from convertq.worker.config import Config
from convertq.worker.counters import fold_counters
from convertq.worker.db import Database
from convertq.worker.files import Files
from convertq.worker.strays import Found, Stray, result_files, source_files, temp_files

#: rows a transaction. The session may be idle in one for 15 s, which leaves 75 ms for each unlink on a slow share.
BATCH = 200
#: files at once. An unlink waits for the disk or the share, and rows are locked until the last of its batch is through.
UNLINKERS = 8
EVENTS_A_PAGE = 5000
#: pages without an old event, after which the rest is taken to be younger; ids and times may differ by so much
YOUNG_PAGES = 20
TIME_TO_FOLD = 60.0  # s
BEGINNING = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


class Kind(StrEnum):
    SOURCE = "source"
    RESULT = "result"
    EVENT = "event"
    ORPHAN = "orphan"
    TEMP = "temp"


@dataclass(frozen=True)
class Item:
    """One thing that was removed, or would be; with an error, one that could not be."""

    kind: Kind
    name: str  # a path, or an event's id
    job_id: UUID
    since: datetime | None = None  # when the job ended, the result expired, the event happened, the file was written
    bytes: int = 0
    error: str | None = None


class Retention:
    def __init__(self, database: Database, files: Files, config: Config, *, dry_run: bool = False) -> None:
        self._database, self._files, self._config, self._dry_run = database, files, config, dry_run

    def run(self) -> Iterator[Item]:
        """Raises OSError when a directory is not there: a share that is not mounted must not pass for an empty one."""
        for directory in (self._files.uploads, self._files.results):
            directory.stat()
        yield from self.expire_sources()
        yield from self.expire_results()
        yield from self.remove_events()
        yield from self.remove_orphans()
        yield from self.remove_temp_files()

    # -- by row: sources and results that have expired --

    def expire_sources(self) -> Iterator[Item]:
        if days := self._config.retention_uploads_days:
            yield from self._expire(
                Kind.SOURCE, "lock_expired_sources", "forget_sources", self._files.source, days=days
            )

    def expire_results(self) -> Iterator[Item]:
        if self._config.retention_results_days:
            yield from self._expire(Kind.RESULT, "lock_expired_results", "forget_results", self._files.result)

    def _expire(
        self, kind: Kind, find: str, forget: str, path_of: Callable[[UUID], Path], **limits: int
    ) -> Iterator[Item]:
        at, job_id = BEGINNING
        while True:
            with self._database.transaction():
                rows = self._database.run(find, after_at=at, after_id=job_id, limit=BATCH, **limits)
                items = self._remove_all(kind, ((path_of(row["id"]), row["id"], row["at"]) for row in rows))
                self._tell(forget, [item.job_id for item in items if not item.error])
            yield from items  # after the commit: whoever prints may be slow
            if len(rows) < BATCH:
                return
            at, job_id = rows[-1]["at"], rows[-1]["id"]

    def _tell(self, statement: str, ids: list[Any]) -> None:
        if ids and not self._dry_run:
            self._database.run(statement, ids=ids)

    # -- events --

    def remove_events(self) -> Iterator[Item]:
        after, young = 0, 0
        fold_counters(self._database, TIME_TO_FOLD)  # what the counters do not hold yet may not go
        while (days := self._config.retention_events_days) and young < YOUNG_PAGES:
            page = self._database.run("page_of_events", days=days, after=after, limit=EVENTS_A_PAGE)[0]
            if page["upto"] is None:
                return
            young = 0 if page["has_old"] else young + 1
            if page["has_old"]:
                yield from self._remove_page(days, after, page["upto"])
            after = page["upto"]

    def _remove_page(self, days: int, after: int, upto: int) -> list[Item]:
        with self._database.transaction():
            rows = self._database.run("lock_old_events", days=days, after=after, upto=upto)
            if rows and not self._dry_run:
                self._database.run("allow_cleanup")
            self._tell("delete_events", [row["id"] for row in rows])
        return [Item(Kind.EVENT, str(row["id"]), row["job_id"], row["at"]) for row in rows]

    # -- by file: what no job knows of --

    def remove_orphans(self) -> Iterator[Item]:
        days = self._config.retention_uploads_days
        for batch in in_batches(source_files(self._files)):
            known = self._known(batch)
            yield from self._remove_strays(Kind.ORPHAN, [each for each in batch if each.job_id not in known])
            yield from self._remove_leftovers(
                Kind.SOURCE, "lock_leftover_sources", [each for each in batch if each.job_id in known], days=days
            )
        for batch in in_batches(result_files(self._files)):
            known = self._known(batch)
            yield from self._remove_strays(Kind.ORPHAN, [each for each in batch if each.job_id not in known])
            yield from self._remove_leftovers(
                Kind.ORPHAN, "lock_leftover_results", [each for each in batch if each.job_id in known and each.is_old]
            )

    def _known(self, strays: list[Stray]) -> set[UUID]:
        return {row["id"] for row in self._database.run("get_statuses", ids=[each.job_id for each in strays])}

    def _remove_leftovers(self, kind: Kind, find: str, strays: list[Stray], **limits: int) -> list[Item]:
        if not strays:
            return []
        with self._database.transaction():
            rows = self._database.run(find, ids=[each.job_id for each in strays], **limits)
            unwanted = {row["id"] for row in rows}
            return self._remove_all(kind, (each.as_found for each in strays if each.job_id in unwanted))

    def _remove_strays(self, kind: Kind, strays: list[Stray]) -> list[Item]:
        """Without a row there is nothing to lock: its age is what keeps a submission under way safe."""
        return self._remove_all(kind, (each.as_found for each in strays if each.is_old))

    def remove_temp_files(self) -> Iterator[Item]:
        for batch in in_batches(each for each in temp_files(self._files) if each.is_old):
            ids = [each.job_id for each in batch]
            running = {row["id"]: row["attempt"] for row in self._database.run("find_running_attempts", ids=ids)}
            idle = [each for each in batch if running.get(each.job_id, -1) != each.attempt]
            yield from self._remove_strays(Kind.TEMP, idle)

    # -- the one place that unlinks --

    def _remove_all(self, kind: Kind, found: Iterable[Found]) -> list[Item]:
        """In their order. Whatever interrupts this: the last unlink is through before the lock on its row can end."""
        with ThreadPoolExecutor(UNLINKERS) as unlinkers:
            return list(unlinkers.map(lambda each: self._remove(kind, *each), found))

    def _remove(self, kind: Kind, path: Path, job_id: UUID, since: datetime) -> Item:
        """What is not there any more counts as removed; what is no regular file was not made here and stays."""
        try:
            found = path.lstat()
            size = found.st_size if stat.S_ISREG(found.st_mode) else 0
            if stat.S_ISREG(found.st_mode) and not self._dry_run:
                path.unlink()
        except FileNotFoundError:
            size = 0
        except OSError as error:
            return Item(kind, str(path), job_id, since, error=(error.strerror or str(error)).lower())
        return Item(kind, str(path), job_id, since, bytes=size)


def in_batches(strays: Iterable[Stray]) -> Iterator[list[Stray]]:
    batch: list[Stray] = []
    for stray in strays:
        batch.append(stray)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
