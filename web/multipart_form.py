"""A multipart form as it arrives: its parts one after the other, in constant memory.

The parser is the `multipart` package and not the one of werkzeug that Flask uses. werkzeug 3.1.9 adds a carriage return
to the last file when a piece of the body ends between the two hyphens of the closing boundary (pallets/werkzeug#3285).
With pieces of 32 KiB that is about one upload in 32,768, which then has another SHA-256. Besides, `request.files` is
complete only after the whole form, so that a bulk upload could not record each file as soon as it has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

from convertq.web.http_error import HttpError
from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    PushMultipartParser,
    parse_options_header,
)

MAX_PARTS = 20
MAX_FIELD_BYTES = 1024
SKIPPED_BYTES = 1024 * 1024

#: A MultipartSegment begins a part, a bytearray is a piece of its content, and None ends it.
Event: TypeAlias = Any


class Body(Protocol):
    def pieces(self) -> Iterator[bytes]: ...


class FormPart:
    """One part of the form. It can be read like a file, until the next part is requested."""

    def __init__(self, events: Iterator[Event], name: str, filename: str | None) -> None:
        self.name, self.filename = name, filename
        self._events = events
        self._unread, self._is_complete = b"", False

    def read(self, size: int, /) -> bytes:
        """At most one piece of the body; nothing at the end of the part."""
        while not self._unread and not self._is_complete:
            event = next(self._events)
            self._unread, self._is_complete = bytes(event or b""), event is None
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def read_field(self) -> str:
        content = b""
        while data := self.read(MAX_FIELD_BYTES):
            content += data
            if len(content) > MAX_FIELD_BYTES:
                raise HttpError(400, f"the form's field {self.name} is longer than {MAX_FIELD_BYTES} bytes")
        return content.decode("utf-8", "replace").strip()

    def skip(self) -> None:
        while self.read(SKIPPED_BYTES):
            pass


def form_parts(body: Body, content_type: str) -> Iterator[FormPart]:
    media_type, options = parse_options_header(content_type)
    if media_type != "multipart/form-data":
        raise HttpError(415, "send the file as multipart/form-data, in a part named file")
    events = _parse(body, options.get("boundary", ""))
    for segment in events:
        part = FormPart(events, segment.name, segment.filename)
        yield part
        part.skip()


def _parse(body: Body, boundary: str) -> Iterator[Event]:
    try:
        with PushMultipartParser(boundary, max_segment_count=MAX_PARTS) as parser:
            for data in body.pieces():
                yield from parser.parse(data)
    except MultipartError as error:
        raise _malformed_form(error) from error


def _malformed_form(error: MultipartError) -> HttpError:
    if isinstance(error.__cause__ or error.args[-1], UnicodeDecodeError):
        return HttpError(400, "a header of the form's parts, such as a file name, is not valid UTF-8")
    return HttpError(400, f"malformed form: {error.args[0]}")
