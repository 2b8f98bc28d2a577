"""An object, opened for reading at any position: the request is sent when the first byte is read."""

from __future__ import annotations

import io
import os
from typing import Any

from convertq.queue.errors import StorageError
from convertq.queue.store.s3_answer import StorageAnswer
from convertq.queue.store.s3_bucket import Bucket
from convertq.queue.store.s3_client import TRIES
from convertq.queue.store.s3_errors import NETWORK_ERRORS, network_error


class ObjectReader(io.RawIOBase):
    """A connection that breaks is replaced, and reading continues where it stopped, in the same version."""

    def __init__(
        self, bucket: Bucket, key: str, size: int, etag: str, answer: StorageAnswer | None = None
    ) -> None:  # fmt: skip
        """`answer` is that of a request which was sent already."""
        super().__init__()
        self._bucket, self._key, self._size, self._etag = bucket, key, size, etag
        self._position = 0
        self._answer = answer

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset != self._position:
            self._drop_answer()
            self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        data = self._read(wanted)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        pieces = []
        while wanted := self._size - self._position:
            pieces.append(self._read(wanted))
            self._position += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read(self, wanted: int) -> bytes:
        error = StorageError("the storage closed the connection")
        for _ in range(TRIES):
            answer = self._answer = self._answer or self._bucket.get(self._key, self._position, self._etag)
            try:
                if data := answer.read(wanted):
                    return data
            except NETWORK_ERRORS as broken:
                error = network_error(broken)
            self._drop_answer()
        raise error

    def _drop_answer(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def close(self) -> None:
        self._drop_answer()
        super().close()
