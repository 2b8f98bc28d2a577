"""The storage's answer to a request, read in pieces, with a limit to how slowly it may arrive."""

from __future__ import annotations

import time
from collections.abc import Callable

from convertq.queue.http_answer import Answer

#: A transfer may wait for its first byte as long as the request allows, and on average must not be slower than this.
#: Only time in which this process waits for the storage counts, not that of a slow reader of a download.
SLOWEST_BYTES_PER_SECOND = 32 * 1024
SHA256_METADATA = "x-amz-meta-sha256"


class SlowTransfer(TimeoutError):
    """Bytes arrive, and so few that the transfer would never end."""


class TransferClock:
    """Counts the time that a transfer has waited for the network."""

    def __init__(self, timeout_seconds: float) -> None:
        self._left = timeout_seconds
        self._since = 0.0

    def start(self) -> None:
        self._since = time.monotonic()

    def stop(self, moved: int) -> None:
        """After `moved` bytes. Raises SlowTransfer."""
        self._left += moved / SLOWEST_BYTES_PER_SECOND - (time.monotonic() - self._since)
        if self._left < 0:
            raise SlowTransfer


class StorageAnswer:
    """`release` is called once: when the body was read to its end, or when the answer is closed before."""

    data = b""  # the body, of an answer that is not streamed

    def __init__(
        self, answer: Answer, clock: TransferClock, count: Callable[[int], None], release: Callable[[Answer], None]
    ) -> None:  # fmt: skip
        self._answer, self._clock, self._count, self._release = answer, clock, count, release
        self._pieces, self._left, self._rest = answer.body(), answer.length, b""
        self._is_released = False
        self.status, self.header = answer.status, answer.header
        if answer.is_complete:
            self.close()

    @property
    def size(self) -> int:
        """Of the object, as the headers give it."""
        return int(self.header("content-length") or 0)

    @property
    def etag(self) -> str:
        return (self.header("etag") or "").strip('"')

    @property
    def sha256(self) -> str:
        """As convertq has stored it with the object; empty where another program has stored it."""
        return self.header(SHA256_METADATA) or ""

    def read_all(self) -> bytes:
        return b"".join(iter(self._next, b"")) if not self._is_released else b""

    def read(self, size: int) -> bytes:
        """What has arrived, at most `size` bytes, and none at the end."""
        data = self._rest or self._next()
        data, self._rest = (data, b"") if len(data) <= size else (data[:size], data[size:])
        return data

    def _next(self) -> bytes:
        if self._is_released:
            return b""
        self._clock.start()
        try:
            piece = next(self._pieces, b"")
            self._clock.stop(len(piece))
        except BaseException:
            self.close()
            raise
        self._count(len(piece))
        if self._left is not None:
            self._left -= len(piece)
        if not piece or self._left == 0:
            next(self._pieces, b"")  # so that the answer knows that it was read to its end
            self.close()
        return piece

    def close(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._release(self._answer)
