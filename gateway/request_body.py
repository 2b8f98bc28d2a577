"""Reads the body of one request, of known length or in chunks, and never more than is allowed."""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from io import BufferedIOBase

from convertq.gateway.answer import Refusal

CHUNK_LINE_LIMIT_BYTES = 1024


class RequestBody:
    """`finished` says whether the whole body was read, so that the next request can follow."""

    def __init__(
        self, stream: BufferedIOBase, headers: Message, limit: int, before_reading: Callable[[], None]
    ) -> None:
        self.stream = stream
        self.limit = limit
        self.received = 0
        self.started = False
        self.before_reading = before_reading
        self.chunked = is_chunked(headers)
        self.remaining = 0 if self.chunked else content_length(headers)
        self.finished = not self.chunked and self.remaining == 0
        if self.remaining > limit:
            raise too_large(limit)

    def read(self, size: int) -> bytes:
        """Up to so many bytes; none at the end of the body."""
        if self.finished:
            return b""
        if not self.started:
            self.started = True
            self.before_reading()
        if self.chunked and self.remaining == 0 and not self.next_chunk():
            return b""
        data = self.take(min(size, self.remaining))
        self.remaining -= len(data)
        if self.remaining == 0:
            self.end_of_piece()
        return data

    def take(self, size: int) -> bytes:
        try:
            data = self.stream.read1(size)
        except TimeoutError as error:
            raise Refusal(408, "the request body did not arrive in time") from error
        if not data:
            raise Refusal(400, "the request body ended before its announced end")
        return data

    def line(self) -> bytes:
        try:
            line = self.stream.readline(CHUNK_LINE_LIMIT_BYTES)
        except TimeoutError as error:
            raise Refusal(408, "the request body did not arrive in time") from error
        if not line.endswith(b"\n"):
            raise Refusal(400, "the chunked request body is malformed")
        return line.strip()

    def next_chunk(self) -> bool:
        digits = self.line().partition(b";")[0].strip()
        if not digits or digits.strip(b"0123456789abcdefABCDEF") or len(digits) > 16:
            raise Refusal(400, "the chunked request body is malformed")
        self.remaining = int(digits, 16)
        self.received += self.remaining
        if self.received > self.limit:
            raise too_large(self.limit)
        if self.remaining == 0:
            while self.line():  # trailers
                pass
            self.finished = True
        return not self.finished

    def end_of_piece(self) -> None:
        if not self.chunked:
            self.finished = True
        elif self.line():
            raise Refusal(400, "the chunked request body is malformed")


def is_chunked(headers: Message) -> bool:
    encoding = headers.get("Transfer-Encoding")
    if encoding is None:
        return False
    if headers.get("Content-Length") is not None:
        raise Refusal(400, "Content-Length and Transfer-Encoding exclude each other")
    if encoding.strip().lower() != "chunked":
        raise Refusal(501, "only the transfer encoding chunked is understood")
    return True


def content_length(headers: Message) -> int:
    lengths = set(headers.get_all("Content-Length", []))
    if not lengths:
        raise Refusal(411, "a Content-Length is needed")
    length = lengths.pop().strip()
    if lengths or not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise Refusal(400, "the Content-Length is not a number")
    return int(length)


def too_large(limit: int) -> Refusal:
    return Refusal(413, f"the body is larger than {limit} bytes")
