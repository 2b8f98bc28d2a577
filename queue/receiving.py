"""Receiving a file that is submitted: it is checked, hashed and stored while it arrives.

No database is needed for that, so that a slow upload occupies no connection. `Submitter.record` makes a job of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID, uuid4

from convertq.queue.config import Config
from convertq.queue.errors import Code
from convertq.queue.store.protocol import PendingSource, Store

PDF_MARK = b"%PDF-"
MARK_WITHIN_BYTES = 1024  # PDF readers accept other bytes before the mark, if it ends within these
CHUNK_BYTES = 1 << 20


class Stream(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, perhaps fewer; none only at the end."""


@dataclass(frozen=True)
class ReceivedFile:
    id: UUID  # of the job that it becomes, unless it joins another one
    source: PendingSource
    bytes: int
    sha256: str
    refusal: Code | None  # why it must not become a job that is converted


class UploadReceiver:
    def __init__(self, store: Store, config: Config, new_id: Callable[[], UUID] = uuid4) -> None:
        self._store, self._config, self._new_id = store, config, new_id

    @contextmanager
    def receive(self, stream: Stream) -> Iterator[ReceivedFile]:
        """The file exists until the end of the block. If no job was recorded for it by then, it is removed."""
        job_id = self._new_id()
        source = self._store.new_source(job_id)
        try:
            yield self._read(stream, job_id, source)
        finally:
            source.discard()

    def _read(self, stream: Stream, job_id: UUID, source: PendingSource) -> ReceivedFile:
        beginning = _read_beginning(stream)
        digest, total = hashlib.sha256(beginning), len(beginning)
        refusal: Code | None = None
        if PDF_MARK not in beginning:
            refusal = Code.NOT_PDF
        else:
            total += self._store_rest(beginning, stream, source, digest.update)
            if total > self._config.max_upload_bytes:
                refusal = Code.TOO_LARGE
        if refusal:  # The rest is read for its size and its hash, by which a second submission of it is recognised.
            source.discard()
            total += sum(map(len, _chunks(stream, digest.update)))
        return ReceivedFile(job_id, source, total, digest.hexdigest(), refusal)

    def _store_rest(
        self, beginning: bytes, stream: Stream, source: PendingSource, update: Callable[[bytes], None]
    ) -> int:
        """Returns how many bytes were read after the beginning. It stops when the file is larger than allowed."""
        read = 0
        with source.create() as sink:
            sink.write(beginning)
            for chunk in _chunks(stream, update):
                read += len(chunk)
                if len(beginning) + read > self._config.max_upload_bytes:
                    return read
                sink.write(chunk)
            if len(beginning) <= self._config.max_upload_bytes:
                source.finish(sink)
        return read


def _read_beginning(stream: Stream) -> bytes:
    beginning = b""
    while len(beginning) < MARK_WITHIN_BYTES and (more := stream.read(MARK_WITHIN_BYTES - len(beginning))):
        beginning += more
    return beginning


def _chunks(stream: Stream, update: Callable[[bytes], None]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK_BYTES):
        update(chunk)
        yield chunk
