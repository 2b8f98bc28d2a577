"""Whether the storage works, as the processes of this host know it: a marker file exists while it does not.

All workers of a host share the marker, so that one of them probes the storage every few seconds and none claims.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from uuid import uuid4

from convertq.queue.errors import StorageError
from convertq.queue.store.s3_bucket import Bucket
from convertq.queue.store.s3_client import Request
from convertq.queue.store.s3_keys import Keys

MARKER = ".storage-away"
PROBE_EVERY_SECONDS = 5.0
PROBE_TIMEOUT_SECONDS = 5.0  # for each of its three requests
NOT_CHECKED = ""  # what the marker contains before the first probe


class Availability:
    def __init__(self, bucket: Bucket, keys: Keys, directory: str) -> None:
        self._bucket, self._keys, self._marker = bucket, keys, f"{directory}/{MARKER}"

    def require_probe(self) -> None:
        """No process of this host claims before the storage was probed."""
        self._write(NOT_CHECKED)

    def reason_to_pause(self) -> str:
        """One system call while the storage works."""
        try:
            age = time.time() - os.stat(self._marker).st_mtime  # noqa: PTH116
        except OSError:
            return ""
        reason = self._read()
        if reason != NOT_CHECKED and 0 <= age < PROBE_EVERY_SECONDS:
            return reason
        if reason != NOT_CHECKED:
            self._write(reason)  # The next process to look leaves this probe to this one.
        self.is_working()
        return self._read()

    def is_working(self) -> bool:
        """Probes the storage, and keeps the answer for all processes of this host."""
        try:
            probe(self._bucket, self._keys)
        except OSError as error:
            self._write(error.strerror or str(error))
            return False
        with contextlib.suppress(OSError):
            os.unlink(self._marker)  # noqa: PTH108
        return True

    def _read(self) -> str:
        try:
            with open(self._marker, encoding="utf-8") as marker:
                return marker.read(500)
        except OSError:
            return ""

    def _write(self, reason: str) -> None:
        """Replaced in one step: no process may read half of it."""
        temporary = f"{self._marker}.{os.getpid()}"
        with contextlib.suppress(OSError):
            with open(temporary, "w", encoding="utf-8") as marker:
                marker.write(reason)
            os.rename(temporary, self._marker)  # noqa: PTH104


def probe(bucket: Bucket, keys: Keys) -> None:
    """Writes, reads and deletes one object. Raises StorageError."""
    content = b"convertq"
    sha256, key = hashlib.sha256(content).hexdigest(), keys.probe(uuid4())
    bucket.client.send(Request("PUT", key, body=content, sha256=sha256, timeout_seconds=PROBE_TIMEOUT_SECONDS))
    if bucket.client.send(Request("GET", key, timeout_seconds=PROBE_TIMEOUT_SECONDS)).data != content:
        raise StorageError("an object was read with another content than it was written")
    bucket.client.send(Request("DELETE", key, timeout_seconds=PROBE_TIMEOUT_SECONDS))
