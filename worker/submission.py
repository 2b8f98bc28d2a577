"""Submitting a file: checked, stored under its id while it is hashed, and recorded as one job or joined to one.

The two halves are apart, because only the second needs the database: a slow upload holds no connection.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import UUID, uuid4

from convertq.worker.config import Config
from convertq.worker.db import Database
from convertq.worker.errors import Code
from convertq.worker.files import Files, create, discard, is_regular, rename_into_place, sync
from psycopg.rows import DictRow

MARK = b"%PDF-"
HEAD = 1024  # bytes that may stand before the mark's end
CHUNK = 1 << 20
NAME_LIMIT = 255  # characters
REFUSALS = {Code.NOT_PDF: "not a PDF file", Code.TOO_LARGE: "the file is larger than {limit} bytes"}


class How(StrEnum):
    CREATED = "created"
    JOINED = "joined"  # this owner's job for the same content is returned
    REQUEUED = "requeued"  # the same, and it was queued again from the new file
    REFUSED = "refused"


@dataclass(frozen=True)
class Submission:
    """What became of one file. A refused one has a code; its id is None when nothing is recorded of it."""

    id: UUID | None
    how: How
    code: Code | None = None
    message: str | None = None


@dataclass(frozen=True)
class Order:
    """What the submitter asks for, besides the file."""

    owner: str
    mapping: str
    pretty: bool = True
    priority: int = 0
    after: Sequence[UUID] = ()
    max_active: int | None = None  # None: the owner may have any number of unfinished jobs


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Received:
    """What was read: its identity, where it lies until it is recorded, and why it is refused, if it is."""

    id: UUID
    part: Path
    bytes: int
    sha256: str
    refusal: Code | None


class TooManyActive(Exception):
    """The order's limit of unfinished jobs is reached; nothing was recorded."""


class Intake:
    """Reading and storing."""

    def __init__(self, files: Files, config: Config, new_id: Callable[[], UUID] = uuid4) -> None:
        self._files, self._config, self._new_id = files, config, new_id

    @contextmanager
    def receive(self, source: Stream) -> Iterator[Received]:
        """The file, until the end of the block: what is not recorded by then is removed."""
        job_id = self._new_id()
        part = self._files.upload_part(job_id)
        try:
            yield self._read(source, job_id, part)
        finally:
            discard(part)

    def _read(self, source: Stream, job_id: UUID, part: Path) -> Received:
        head = _read_head(source)
        digest, total = hashlib.sha256(head), len(head)
        refusal: Code | None = None
        if MARK not in head[:HEAD]:
            refusal = Code.NOT_PDF
        else:
            total += self._store(head, source, part, digest.update)
            if total > self._config.max_upload_bytes:
                refusal = Code.TOO_LARGE
        if refusal:  # only its identity is wanted now
            discard(part)
            total += sum(map(len, _chunks(source, digest.update)))
        return Received(job_id, part, total, digest.hexdigest(), refusal)

    def _store(self, head: bytes, source: Stream, part: Path, update: Callable[[bytes], None]) -> int:
        """Bytes read after the head; it stops when they pass the limit."""
        copied = 0
        with create(part) as sink:
            sink.write(head)
            for chunk in _chunks(source, update):
                copied += len(chunk)
                if len(head) + copied > self._config.max_upload_bytes:
                    break
                sink.write(chunk)
            sync(sink)
        return copied


class Submitter:
    def __init__(self, database: Database, files: Files, config: Config, new_id: Callable[[], UUID] = uuid4) -> None:
        self._database, self._files, self._config = database, files, config
        self._intake = Intake(files, config, new_id)

    def submit_file(self, path: Path, order: Order) -> Submission:
        """Raises OSError for what is not a readable, regular file, or cannot be stored."""
        with open_source(path) as source:
            return self.submit(source, path.name, order)

    def submit(self, source: Stream, name: str, order: Order) -> Submission:
        with self._intake.receive(source) as received:
            return self.record(received, name, order)

    # -- recording: one transaction, in which the file gets its name --

    def record(self, received: Received, name: str, order: Order) -> Submission:
        """Raises TooManyActive."""
        if received.bytes == 0:
            return Submission(None, How.REFUSED, Code.NOT_PDF, "the file is empty")
        row = _row(received, name, order)
        if received.refusal:
            return self._refuse(row, received.refusal)
        return self._record(row, received.part, order)

    def _record(self, row: dict[str, Any], part: Path, order: Order) -> Submission:
        job_id, source = row["id"], self._files.source(row["id"])
        status = "uploaded" if order.after else "queued"
        while True:
            with self._database.transaction():
                if order.max_active is not None:
                    self._database.run("lock_owner", owner=order.owner)  # two uploads at once see each other
                if self._database.one("submit_job", **row, status=status, upload_path=str(source)):
                    for needed in order.after:
                        self._database.run("add_dependency", id=job_id, depends_on=needed)
                    self._check_room(order)
                    rename_into_place(part, source)  # last: what fails before leaves no file behind
                    return Submission(job_id, How.CREATED)
                if existing := self._database.one("find_duplicate", **_identity(row)):
                    return self._join(existing, row, part, order)
            # the job that was in the way has been deleted since: it is in nobody's way now

    def _check_room(self, order: Order) -> None:
        """After the row was written: it counts itself."""
        if order.max_active is None:
            return
        if self._database.run("count_active_jobs", owner=order.owner)[0]["active"] > order.max_active:
            raise TooManyActive

    def _join(self, existing: DictRow, row: dict[str, Any], part: Path, order: Order) -> Submission:
        """The row is locked: nobody else decides the same thing, and no worker can take it."""
        job_id = existing["id"]
        if not self._needs_another_run(existing):
            return Submission(job_id, How.JOINED)
        source = self._files.source(job_id)
        self._database.run(
            "resubmit_job", id=job_id, upload_path=str(source), pretty=row["pretty"], priority=row["priority"]
        )
        self._check_room(order)
        self._files.result(job_id).unlink(missing_ok=True)  # or the worker would take it for this run's
        rename_into_place(part, source)
        return Submission(job_id, How.REQUEUED)

    def _needs_another_run(self, existing: DictRow) -> bool:
        if existing["status"] == "complete":
            return not (existing["has_result"] and is_regular(self._files.result(existing["id"])))
        return bool(existing["status"] == "failed")

    def _refuse(self, row: dict[str, Any], code: Code) -> Submission:
        message = REFUSALS[code].format(limit=self._config.max_upload_bytes)
        with self._database.transaction():
            job_id: UUID | None = row["id"]
            if not self._database.one("refuse_job", **row, error_code=code, error_message=message):
                existing = self._database.one("find_duplicate", **_identity(row))
                was_refused = existing is not None and existing["error_code"] in REFUSALS
                job_id = existing["id"] if existing and was_refused else None
        return Submission(job_id, How.REFUSED, code, message)


def _row(received: Received, name: str, order: Order) -> dict[str, Any]:
    return {
        "id": received.id,
        "owner": order.owner,
        "original_filename": recorded_name(name),
        "bytes": received.bytes,
        "sha256": received.sha256,
        "mapping": order.mapping,
        "pretty": order.pretty,
        "priority": order.priority,
    }


def _identity(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("owner", "sha256", "mapping", "bytes")}


def recorded_name(name: str) -> str:
    """The base name as text that the database takes: bytes that are no UTF-8 are replaced, NUL is left out."""
    base = name.rpartition("/")[2].replace("\0", "")
    return re.sub("[\ud800-\udfff]", "\ufffd", base)[:NAME_LIMIT]


def _read_head(source: Stream) -> bytes:
    """A stream may give less than asked for; only nothing is its end."""
    head = b""
    while len(head) < HEAD and (more := source.read(HEAD - len(head))):
        head += more
    return head


def _chunks(source: Stream, update: Callable[[bytes], None]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK):
        update(chunk)
        yield chunk


# -- the submitter's own file --


class SteadyFile:
    """A file that must be at its end what it was at its start; half of each of two versions is no document."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path, self._before = file, path, self._look(file)

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        if not data and self._look(self._file) != self._before:
            raise OSError(errno.ESTALE, "it changed while it was read; submit it again", str(self._path))
        return data

    @staticmethod
    def _look(file: BinaryIO) -> tuple[int, int]:
        found = os.fstat(file.fileno())
        return found.st_size, found.st_mtime_ns


@contextmanager
def open_source(path: Path) -> Iterator[SteadyFile]:
    """A symlink is followed: it is the submitter's. A pipe or a device is not waited for."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield SteadyFile(file, path)
