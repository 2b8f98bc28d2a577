"""Reading an upload as it streams by: framing, multipart, hashes; the file itself is never kept."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPMessage, parse_headers

LINE_LIMIT = 1 << 16
Sink = Callable[[bytes], None]


@dataclass
class Upload:
    """The form of one request. `fields` has all parts but the file."""

    fields: dict[str, str] = field(default_factory=dict)
    file_field: str | None = None
    file_name: str | None = None
    file_type: str | None = None
    file_size: int = 0
    file_sha256: str | None = None
    whole: bool = False


class SizedBody(io.RawIOBase):
    """A body of Content-Length bytes; one that ends early is an error, as it is for a real server."""

    def __init__(self, source: io.BufferedIOBase, length: int) -> None:
        self._source = source
        self._left = length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._left)
        data = self._source.read(wanted) if wanted else b""
        if len(data) < wanted:
            raise ConnectionResetError("the client stopped in the middle of its upload")
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


class ChunkedBody(io.RawIOBase):
    """A body in chunked transfer coding."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._source = source
        self._left = 0
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._left and not self._ended:
            self._begin_chunk()
        wanted = min(len(buffer), self._left)
        data = self._source.read(wanted) if wanted else b""
        if len(data) < wanted:
            raise ConnectionResetError("the client stopped in the middle of a chunk")
        self._left -= len(data)
        if wanted and not self._left:
            self._source.readline()
        buffer[: len(data)] = data
        return len(data)

    def _begin_chunk(self) -> None:
        size = self._source.readline(LINE_LIMIT).split(b";")[0].strip()
        if not size:
            raise ConnectionResetError("the client stopped between chunks")
        self._left = int(size, 16)
        if not self._left:
            self._ended = True
            parse_headers(self._source)


def body_of(headers: Message, source: io.BufferedIOBase) -> io.BufferedReader:
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        return io.BufferedReader(ChunkedBody(source), LINE_LIMIT)
    return io.BufferedReader(SizedBody(source, int(headers.get("Content-Length", 0))), LINE_LIMIT)


def read_upload(headers: Message, source: io.BufferedIOBase, upload: Upload) -> None:
    """Fill `upload` in place, so that what an interrupted client had sent is still recorded."""
    body = body_of(headers, source)
    boundary = headers.get_boundary()
    if boundary:
        _read_parts(body, b"--" + boundary.encode(), upload)
    while body.read(LINE_LIMIT):
        pass
    upload.whole = True


def _read_parts(body: io.BufferedReader, delimiter: bytes, upload: Upload) -> None:
    line = body.readline(LINE_LIMIT)
    while line.rstrip() == delimiter:
        part = parse_headers(body)
        read_part = _read_file if part.get_filename() else _read_field
        line = read_part(body, delimiter, part, upload)


def _read_file(body: io.BufferedReader, delimiter: bytes, part: HTTPMessage, upload: Upload) -> bytes:
    digest = hashlib.sha256()
    upload.file_field = str(part.get_param("name", header="content-disposition"))
    upload.file_name = part.get_filename()
    upload.file_type = part.get_content_type()

    def count(data: bytes) -> None:
        digest.update(data)
        upload.file_size += len(data)

    line = _copy_part(body, delimiter, count)
    upload.file_sha256 = digest.hexdigest()
    return line


def _read_field(body: io.BufferedReader, delimiter: bytes, part: HTTPMessage, upload: Upload) -> bytes:
    value = bytearray()
    line = _copy_part(body, delimiter, value.extend)
    name = str(part.get_param("name", header="content-disposition"))
    upload.fields[name] = value.decode()
    return line


def _copy_part(body: io.BufferedReader, delimiter: bytes, sink: Sink) -> bytes:
    """Send the part to `sink`; the line end before a delimiter belongs to the delimiter, so hold it back."""
    held = b"\r\n"
    first = True
    while line := body.readline(LINE_LIMIT):
        if held == b"\r\n" and line.startswith(delimiter):
            return line
        data = line if first else held + line
        first = False
        held = b"\r\n" if data.endswith(b"\r\n") else b"\r" if data.endswith(b"\r") else b""
        sink(data[: len(data) - len(held)])
    return b""
