"""Copying the files of all jobs to another store, while workers run. Nothing is deleted.

A row names the copy only after the copy was stored whole, so that every job can be read before, during and after. A
file whose copy is there already is not copied again: an interrupted run is simply repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO
from uuid import UUID

from convertq.queue.artifact import Artifact, insert_artifacts
from convertq.queue.database.database import Database
from convertq.queue.errors import StorageError
from convertq.queue.job import ClaimedJob
from convertq.queue.store.content_hash import sha256_of
from convertq.queue.store.protocol import Store
from psycopg.rows import DictRow

PAGE_JOBS = 100
THREADS = 8
CHUNK_BYTES = 256 * 1024
SHA256_DIGITS = 64
HOLDER = "storage-copy"  # in the names of temporary files


class What(StrEnum):
    COPIED = "copied"
    THERE = "there"  # at the target already
    MISSING = "missing"  # the row names a file that is not there
    CHANGED = "changed"  # the row was changed meanwhile: it expired, or was started over
    FAILED = "failed"


@dataclass(frozen=True)
class FileCopy:
    job_id: UUID
    kind: str  # source, result
    what: What
    location: str = ""  # of the copy
    bytes: int = 0
    error: str | None = None
    artifact: Artifact | None = None


class StorageCopy:
    """`reader` finds each file where its row says; `target` is where the copies go."""

    def __init__(
        self, database: Database, reader: Store, target: Store, *, is_at_target: Callable[[str], bool], verify: bool
    ) -> None:
        self._database, self._reader, self._target = database, reader, target
        self._is_at_target, self._verify = is_at_target, verify

    def count_jobs(self) -> int:
        return int(self._database.run("count_stored_jobs")[0]["jobs"])

    def run(self) -> Iterator[list[FileCopy]]:
        """The files of one job at a time. Raises StorageError when the storage as a whole fails."""
        after = UUID(int=0)
        with ThreadPoolExecutor(THREADS) as threads:
            while rows := self._database.run("list_stored_jobs", after_id=after, limit=PAGE_JOBS):
                for row, copies in zip(rows, threads.map(self._copy_files, rows), strict=True):
                    yield [self._record(row, copy) for copy in copies]
                after = rows[-1]["id"]

    # -- in a thread: files only --

    def _copy_files(self, row: DictRow) -> list[FileCopy]:
        copies = [self._try(row, "source", self._copy_source)]
        if row["result_path"] is not None:
            copies.append(self._try(row, "result", self._copy_result))
        return [copy for copy in copies if copy is not None]

    def _try(self, row: DictRow, kind: str, copy: Callable[[DictRow], FileCopy | None]) -> FileCopy | None:
        try:
            return copy(row)
        except FileNotFoundError:
            return FileCopy(row["id"], kind, What.MISSING)
        except StorageError:
            raise  # the next file would fail too
        except OSError as error:
            return FileCopy(row["id"], kind, What.FAILED, error=error.strerror or str(error))

    def _copy_source(self, row: DictRow) -> FileCopy | None:
        """A row that names no source may still have one, under the job's id."""
        job_id, location = row["id"], self._target.source_location(row["id"])
        if self._target.has_source(job_id):
            if self._verify:
                self._require(row["sha256"], self._target.open_source(job_id).file)
            is_named = row["upload_path"] is None or self._is_at_target(row["upload_path"])
            return FileCopy(job_id, "source", What.THERE if is_named else What.COPIED, location)
        if row["upload_path"] is None and not self._reader.has_source(job_id):
            return None
        opened, copy = self._reader.open_source(job_id), self._target.new_source(job_id)
        try:
            with opened.file as source, copy.create() as sink:
                _copy(source, sink)
                copy.finish(sink)
            copy.put(job_id)
        finally:
            copy.discard()
        if self._verify:
            self._require(row["sha256"], self._target.open_source(job_id).file)
        return FileCopy(job_id, "source", What.COPIED, location, opened.size)

    def _copy_result(self, row: DictRow) -> FileCopy:
        job_id, old = row["id"], row["result_path"]
        if self._is_at_target(old):
            self._check_there(job_id, old)
            return FileCopy(job_id, "result", What.THERE, old)
        opened = self._reader.open_result(job_id, old)
        copy = self._target.new_result(_as_claimed(row))
        try:
            with opened.file as source, copy.create() as sink:
                sha256 = _copy(source, sink)
                copy.finish(sink)
            copy.publish()
        finally:
            copy.discard()
        if self._verify:
            self._require(sha256, self._target.open_result(job_id, copy.location).file)
        return FileCopy(job_id, "result", What.COPIED, copy.location, opened.size, artifact=copy.artifact)

    def _check_there(self, job_id: UUID, location: str) -> None:
        """Raises FileNotFoundError. Object storage keeps the checksum of a result with it."""
        opened = self._target.open_result(job_id, location)
        with opened.file:
            if self._verify and len(opened.etag) == SHA256_DIGITS:
                self._require(opened.etag, opened.file)

    def _require(self, sha256: str, file: BinaryIO) -> None:
        with file:
            if sha256_of(file) != sha256:
                raise OSError("the copy has another checksum than the original")

    # -- in the caller's thread: rows --

    def _record(self, row: DictRow, copy: FileCopy) -> FileCopy:
        old = row["upload_path" if copy.kind == "source" else "result_path"]
        if copy.what is not What.COPIED or old is None or old == copy.location:
            return copy
        with self._database.transaction():
            moved = self._database.one(f"move_{copy.kind}", id=copy.job_id, old_location=old, location=copy.location)
            if moved and copy.artifact:
                name, parameters = insert_artifacts([(copy.job_id, copy.artifact)])
                self._database.run(name, **parameters)
        return copy if moved else FileCopy(copy.job_id, copy.kind, What.CHANGED)


def _copy(source: BinaryIO, sink: BinaryIO) -> str:
    """Returns the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        sink.write(chunk)
    return digest.hexdigest()


def _as_claimed(row: DictRow) -> ClaimedJob:
    """The job as the attempt saw it that made the result: its run and attempt are in the name of the copy."""
    return ClaimedJob(
        row["id"], HOLDER, row["attempt"], row["mapping"], row["pretty"], row["bytes"],
        is_trial=False, queued_ms=0, run=row["run"],
    )  # fmt: skip
