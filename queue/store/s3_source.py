"""An uploaded PDF on its way to S3: a temporary file on this host, then an object, then the source of a job.

It is uploaded before the transaction that records its job, so that no transaction waits for the network.
"""

from __future__ import annotations

import contextlib
from typing import BinaryIO
from uuid import UUID

from convertq.queue.store.content_hash import sha256_of
from convertq.queue.store.regular_file import create, discard, open_regular
from convertq.queue.store.s3_bucket import Bucket
from convertq.queue.store.s3_keys import Keys

CONTENT_TYPE = "application/pdf"


class S3Source:
    def __init__(self, bucket: Bucket, keys: Keys, directory: str, upload_id: UUID) -> None:
        self._bucket, self._keys, self._upload_id = bucket, keys, upload_id
        self._temporary = f"{directory}/.{upload_id}.0.upload.part"
        self._is_uploaded = self._is_taken = False

    def create(self) -> BinaryIO:
        return create(self._temporary)

    def finish(self, sink: BinaryIO) -> None:
        sink.flush()
        with open_regular(self._temporary).file as file:
            sha256 = sha256_of(file)
            self._is_uploaded = True  # perhaps even if an error follows
            self._bucket.put(self._keys.source(self._upload_id), file, sha256, CONTENT_TYPE, only_new=False)

    def put(self, job_id: UUID) -> None:
        if job_id == self._upload_id:
            self._is_taken = True
        else:
            self._bucket.copy(self._keys.source(self._upload_id), self._keys.source(job_id))

    def discard(self) -> None:
        """An object that cannot be deleted now is an orphan, which `cleanup` deletes."""
        discard(self._temporary)
        if self._is_uploaded and not self._is_taken:
            self._is_uploaded = False
            with contextlib.suppress(OSError):
                self._bucket.delete(self._keys.source(self._upload_id))
