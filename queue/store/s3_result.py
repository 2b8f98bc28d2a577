"""The result of one attempt on S3: a temporary file on this host, then an object that never changes.

The object becomes the job's result by the commit that writes its key into the row. An attempt that lost its lease may
leave an object that no row names; `cleanup` deletes it.
"""

from __future__ import annotations

import hashlib
import io
from typing import BinaryIO

from convertq.queue.artifact import Artifact
from convertq.queue.job import ClaimedJob
from convertq.queue.store.content_hash import sha256_of
from convertq.queue.store.regular_file import create, discard, open_regular
from convertq.queue.store.s3_bucket import Bucket, ObjectInfo
from convertq.queue.store.s3_keys import Keys
from convertq.queue.store.s3_reader import ObjectReader
from convertq.queue.xml_check import NotXml, check_file

CONTENT_TYPE = "application/xml"


class S3Result:
    def __init__(self, bucket: Bucket, keys: Keys, job: ClaimedJob, temporary: str) -> None:
        self._bucket, self._keys, self._job, self._temporary = bucket, keys, job, temporary
        self.location = ""
        self.artifact: Artifact | None = None

    def create(self) -> BinaryIO:
        return create(self._temporary)

    def finish(self, sink: BinaryIO) -> None:
        """The temporary file need not be durable: after a crash another attempt makes another one."""
        sink.flush()
        with open_regular(self._temporary).file as file:
            sha256 = sha256_of(file)
            size = file.tell()
            key = self._keys.result(self._job.name, self._job.run, self._job.attempt, sha256)
            self._bucket.put(key, file, sha256, CONTENT_TYPE, only_new=True)
        self._record(key, self._job.attempt, size, sha256)

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
