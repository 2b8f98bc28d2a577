"""The result of one attempt on S3: a temporary file on this host, then an object that never changes.

The object becomes the job's result by the commit that writes its key into the row. An attempt that lost its lease may
leave an object that no row names; `cleanup` deletes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from convertq.queue.artifact import Artifact
from convertq.queue.job import ClaimedJob
from convertq.queue.store.regular_file import create, discard, open_regular
from convertq.queue.store.s3_bucket import Bucket, ObjectInfo
from convertq.queue.store.s3_keys import Keys
from convertq.queue.store.s3_reader import ObjectReader
from convertq.queue.xml_check import NotXml, check_file

CONTENT_TYPE = "application/xml"
#: A larger result is in a temporary file until it is uploaded.
MEMORY_BYTES = 64 * 1024


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ResultSink(io.BytesIO):
    """Hashes what is written to it. What does not fit into memory goes to the temporary file."""

    def __init__(self, temporary: str) -> None:
        super().__init__()
        self._temporary = temporary
        self._file: BinaryIO | None = None
        self.sha256, self.size = hashlib.sha256(), 0

    def write(self, data: ReadableBuffer, /) -> int:
        self.sha256.update(data)
        written = memoryview(data).nbytes
        self.size += written
        if self._file is None and self.size > MEMORY_BYTES:
            self._file = create(self._temporary)
            self._file.write(self.getvalue())
            self.seek(0)
            self.truncate()
        return super().write(data) if self._file is None else self._file.write(data)

    @contextlib.contextmanager
    def opened(self) -> Iterator[bytes | BinaryIO]:
        """What was written, for the upload."""
        if self._file is None:
            yield self.getvalue()
            return
        self._file.flush()
        with open_regular(self._temporary).file as file:
            yield file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


class S3Result:
    def __init__(self, bucket: Bucket, keys: Keys, job: ClaimedJob, temporary: str) -> None:
        self._bucket, self._keys, self._job, self._temporary = bucket, keys, job, temporary
        self.location = ""
        self.artifact: Artifact | None = None

    def create(self) -> BinaryIO:
        self._sink = ResultSink(self._temporary)
        return self._sink

    def finish(self, sink: BinaryIO) -> None:
        """The temporary file need not be durable: after a crash another attempt makes another one."""
        sha256 = self._sink.sha256.hexdigest()
        key = self._keys.result(self._job.name, self._job.run, self._job.attempt, sha256)
        with self._sink.opened() as content:
            self._bucket.put(key, content, sha256, CONTENT_TYPE, only_new=True)
        self._record(key, self._job.attempt, self._sink.size, sha256)

    def _record(self, key: str, attempt: int, size: int, sha256: str) -> None:
        self.location = self._bucket.url.location_of(key)
        self.artifact = Artifact("result", self._job.run, attempt, "s3", self.location, size, sha256, CONTENT_TYPE)

    def publish(self) -> None:
        """The commit that follows is the publication."""

    def discard(self) -> None:
        discard(self._temporary)

    def may_have_leftover(self) -> bool:
        return self._job.attempt > 1

    def find_leftover(self) -> str | None:
        """The newest whole result of this run. Only an attempt after the first looks for one."""
        listed = self._bucket.list_objects(f"{self._keys.results_of(self._job.name)}{self._job.run}.")
        found = [(result.attempt, each.key) for each in listed if (result := self._keys.read_result(each.key))]
        for attempt, key in sorted(found, reverse=True):
            info = self._bucket.head(key)
            if info is not None and self._is_whole(key, info):
                self._record(key, attempt, info.size, info.sha256)
                return self.location
        return None

    def _is_whole(self, key: str, info: ObjectInfo) -> bool:
        with HashingReader(ObjectReader(self._bucket, key, info.size, info.etag)) as file:
            try:
                check_file(file)
            except (FileNotFoundError, NotXml):
                return False
            sha256 = file.sha256.hexdigest()
        result = self._keys.read_result(key)
        return result is not None and sha256 == info.sha256 and sha256.startswith(result.sha256_start)

    def remove_leftover(self) -> None:
        """Nothing is in the way: this attempt's object has another key."""


class HashingReader(io.BufferedReader):
    """Hashes what is read from it, in its order."""

    def __init__(self, raw: ObjectReader) -> None:
        super().__init__(raw, 256 * 1024)
        self.sha256 = hashlib.sha256()

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.sha256.update(data)
        return data
