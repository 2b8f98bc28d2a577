"""An HTTP/1.1 answer, read from a socket in pieces of bounded size.

http.client parses headers with the parser for e-mail, which alone costs as much CPU as all the rest of a call.
"""

from __future__ import annotations

import http.client
import re
import socket
import zlib
from collections.abc import Iterator

PIECE_BYTES = 64 * 1024
RECEIVE_BYTES = 16 * 1024  # enough for the headers and a small document in one system call
MAX_HEADER_BYTES = 64 * 1024
END_OF_LINE = re.compile(rb"\r?\n")
LINES = re.compile(r"\r?\n")
END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
STATUS_LINE = re.compile(r"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: .*)?")
#: A line of a header, as every server sends it. What does not fit is parsed line by line.
HEADER = re.compile(r"^([^\s:]+):[ \t]*([^\r\n]*)", re.MULTILINE)
LENGTH = re.compile(r"[0-9]{1,18}")
CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}(?=[ \t;]|$)")
GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class MalformedAnswer(http.client.HTTPException):
    """The server sent something that is not HTTP/1.1."""


class SocketReader:
    """Keeps the bytes that arrived beyond those that were taken."""

    def __init__(self, source: socket.socket) -> None:
        self._socket = source
        self._buffer, self._position = b"", 0

    @property
    def is_empty(self) -> bool:
        return self._position == len(self._buffer)

    def take(self, size: int) -> bytes:
        """Returns what has arrived, at most `size` bytes; waits for the first byte, and returns none at the end."""
        if self.is_empty:
            return self._socket.recv(size)
        taken = self._buffer[self._position : self._position + size]
        self._position += len(taken)
        return taken

    def take_until(self, end: re.Pattern[bytes]) -> bytes:
        """Returns what comes before `end`, and drops `end`."""
        while (found := end.search(self._buffer, self._position)) is None:
            self._receive()
        taken = self._buffer[self._position : found.start()]
        self._position = found.end()
        return taken

    def _receive(self) -> None:
        kept = self._buffer[self._position :]
        if len(kept) > MAX_HEADER_BYTES:
            raise MalformedAnswer("its headers are too long")
        if not (arrived := self._socket.recv(RECEIVE_BYTES)):
            raise http.client.IncompleteRead(kept[:100]) if kept else http.client.RemoteDisconnected("no answer")
        self._buffer, self._position = kept + arrived, 0


class Answer:
    """`is_complete` says whether all of the body was read, and `is_last` whether the server ends the connection."""

    def __init__(self, source: socket.socket, *, is_head: bool = False) -> None:
        """The answer to a HEAD request has no body, whatever its headers say."""
        self._reader = SocketReader(source)
        self.status, self.is_last, self._headers = self._read_headers()
        self.length = 0 if is_head else self._find_length()  # None: known only at the end of the body
        self.is_complete = self.length == 0

    @property
    def leaves_connection_usable(self) -> bool:
        """Bytes that follow an answer before the next request was sent must never be taken for the next answer."""
        return self.is_complete and not self.is_last and self._reader.is_empty

    def header(self, name: str) -> str | None:
        return self._headers.get(name.lower())

    def pieces(self) -> Iterator[bytes]:
        """The body, decoded. Raises http.client.IncompleteRead when it ends too early."""
        encoding = (self.header("Content-Encoding") or "").strip().lower()
        body = self.body()
        return _decompressed(body) if encoding in ("gzip", "x-gzip", "deflate") else body

    # -- headers --

    def _read_headers(self) -> tuple[int, bool, dict[str, str]]:
        """Skips interim answers such as 100 Continue."""
        while True:
            text = self._reader.take_until(END_OF_HEADERS).decode("latin-1")
            status_line, _, lines = text.partition("\n")
            found = STATUS_LINE.fullmatch(status_line.rstrip("\r"))
            if found is None:
                raise MalformedAnswer("it does not begin with an HTTP status line")
            if found[2][0] != "1" or found[2] == "101":
                break
        headers = _parse_headers(lines)
        connection = headers.get("connection", "").lower()
        is_last = "close" in connection or (found[1] == "0" and "keep-alive" not in connection)
        return int(found[2]), is_last, headers

    def _find_length(self) -> int | None:
        """None: the body is chunked, or ends with the connection."""
        if self.status in (204, 304):
            return 0
        if "transfer-encoding" in self._headers:
            return None
        length = self._headers.get("content-length")
        if length is None:
            self.is_last = True
            return None
        if not LENGTH.fullmatch(length):
            raise MalformedAnswer("its Content-Length is not a number")
        return int(length)

    # -- the body --

    def body(self) -> Iterator[bytes]:
        """As it was sent. Raises http.client.IncompleteRead when it ends too early."""
        if self.length is not None:
            yield from self._take(self.length)
        elif "transfer-encoding" in self._headers:
            yield from self._chunks()
        else:
            while piece := self._reader.take(PIECE_BYTES):
                yield piece
        self.is_complete = True

    def _take(self, length: int) -> Iterator[bytes]:
        while length:
            piece = self._reader.take(min(length, PIECE_BYTES))
            if not piece:
                raise http.client.IncompleteRead(b"", length)
            length -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while size := self._read_chunk_size():
            yield from self._take(size)
            if self._reader.take_until(END_OF_LINE):
                raise MalformedAnswer("a chunk is longer than its size")
        while self._reader.take_until(END_OF_LINE):
            pass  # A trailer, of which nothing is used.

    def _read_chunk_size(self) -> int:
        found = CHUNK_SIZE.match(self._reader.take_until(END_OF_LINE))
        if found is None:
            raise MalformedAnswer("a chunk has no size")
        return int(found[0], 16)


def _parse_headers(text: str) -> dict[str, str]:
    found = HEADER.findall(text)
    headers = {name.lower(): value.rstrip() for name, value in found}
    if len(headers) == text.count("\n") + bool(text):
        return headers
    return _parse_lines(LINES.split(text)) if text else {}


def _parse_lines(lines: list[str]) -> dict[str, str]:
    """The first of several headers with one name counts; two lengths that differ are an error."""
    headers: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.startswith((" ", "\t")) and name:  # continues the line before
            headers[name] += " " + line.strip()
            continue
        text, colon, value = line.partition(":")
        name, value = text.strip().lower(), value.strip()
        if not colon or not name:
            raise MalformedAnswer("a header has no name")
        if headers.setdefault(name, value) != value and name == "content-length":
            raise MalformedAnswer("it has two lengths")
    return headers


def _decompressed(body: Iterator[bytes]) -> Iterator[bytes]:
    """A small compressed body can become very large, so its pieces are bounded too."""
    decompressor = zlib.decompressobj(GZIP_OR_ZLIB)
    try:
        for compressed in body:
            while compressed and not decompressor.eof:
                if piece := decompressor.decompress(compressed, PIECE_BYTES):
                    yield piece
                compressed = decompressor.unconsumed_tail
        if not decompressor.eof:
            raise MalformedAnswer("its compressed body is cut off")
    except zlib.error as error:
        raise MalformedAnswer("its body cannot be decompressed") from error
