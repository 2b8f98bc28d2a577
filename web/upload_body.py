"""The body of an upload: read in pieces, and refused when it is too large, too slow or incomplete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

from convertq.queue.errors import Code
from convertq.web.http_error import HttpError
from convertq.web.request_limits import MalformedBody, take_turn

#: Large pieces cost less: gunicorn copies what it has buffered, up to a megabyte, for each of them. A read returns when
#: the whole piece has arrived, and a slow client gets more time with each piece (LimitedBody): its pieces are small.
MIN_PIECE_BYTES, MAX_PIECE_BYTES = 32 * 1024, 1024 * 1024
QUICK_PIECE_SECONDS = 1.0  # A piece that arrives within this time is followed by one of twice its size.
SMALL_BODY_BYTES = 128 * 1024  # A body is read up to here without waiting for a turn.
OVERHEAD_BYTES = 64 * 1024  # Boundaries, headers and small fields around the largest allowed file.


class Input(Protocol):
    def read(self, size: int, /) -> bytes: ...


class UploadBody:
    """`content_length` is None for a chunked body; the bytes that arrive are counted in either case."""

    def __init__(self, stream: Input, limit: int, content_length: int | None = None) -> None:
        self._stream, self._limit, self._content_length = stream, limit, content_length
        self._read_bytes, self._piece_bytes = 0, MIN_PIECE_BYTES

    def pieces(self) -> Iterator[bytes]:
        while data := self._read_piece():
            self._read_bytes += len(data)
            if self._read_bytes > self._limit + OVERHEAD_BYTES:
                raise too_large(self._limit)
            yield data
        if self._content_length is not None and self._read_bytes < self._content_length:
            raise incomplete_upload()

    def _read_piece(self) -> bytes:
        if self._read_bytes > SMALL_BODY_BYTES:
            take_turn()
        started = time.monotonic()
        try:
            data = self._stream.read(self._piece_bytes)
        except MalformedBody:
            raise HttpError(400, "malformed chunked encoding of the request body") from None
        except OSError:  # The body arrives too slowly (LimitedBody), or the client has closed the connection.
            raise incomplete_upload() from None
        is_quick = time.monotonic() - started < QUICK_PIECE_SECONDS
        self._piece_bytes = min(2 * self._piece_bytes, MAX_PIECE_BYTES) if is_quick else MIN_PIECE_BYTES
        return data


def too_large(limit: int) -> HttpError:
    return HttpError(413, f"the file is larger than {limit} bytes", Code.TOO_LARGE)


def incomplete_upload() -> HttpError:
    return HttpError(408, "the upload did not arrive in time or not completely: send it again")
