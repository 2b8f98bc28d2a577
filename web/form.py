"""A form as it arrives: its parts one after the other, and never more, or slower, than is allowed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from convertq.web.refusal import Refusal
from convertq.worker.errors import Code
from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

PIECE = 32 * 1024
OVERHEAD = 64 * 1024  # boundaries, headers and small fields around the largest allowed file
FIELD_LIMIT = 1024  # bytes
FIELDS = ("mapping", "priority", "pretty")


class Input(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Body:
    """The request's bytes, refused when they are more than allowed, whatever was announced, or end too early."""

    def __init__(self, stream: Input, limit: int, announced: int | None = None) -> None:
        self._stream, self._limit, self._announced = stream, limit, announced
        self._read = 0

    def pieces(self) -> Iterator[bytes]:
        while data := self._next():
            self._read += len(data)
            if self._read > self._limit + OVERHEAD:
                raise too_large(self._limit)
            yield data
        if self._announced is not None and self._read < self._announced:
            raise too_slow()

    def _next(self) -> bytes:
        try:
            return self._stream.read(PIECE)
        except OSError:  # nothing came for too long (PatientWorker), or the client is gone
            raise too_slow() from None


class Form:
    """Reads like the one file in the form; what comes before and after it is kept as `fields`."""

    def __init__(self, body: Body, content_type: str) -> None:
        self.fields: dict[str, bytearray] = {}
        self.filename: str | None = None
        self._has_file = False
        self._part: str | None = None
        self._ready: deque[bytes] = deque()
        self._events = form_events(body, content_type)

    def read(self, size: int, /) -> bytes:
        """The next bytes of the file, nothing at its end; a piece is never larger than what arrived at once."""
        while not self._ready:
            event = next(self._events, _END)
            if event is _END:
                return b""
            self._take(event)
        data = self._ready.popleft()
        if len(data) > size:
            self._ready.appendleft(data[size:])
        return data[:size]

    def read_rest(self) -> None:
        """Fields may stand behind the file; and an answer is heard only by who has said all."""
        while self.read(PIECE):
            pass
        if not self._has_file:
            raise Refusal(400, "the form has no part named file")

    def _take(self, event: Any) -> None:
        if event is None:
            self._part = None
        elif isinstance(event, MultipartSegment):
            self._begin(event)
        elif self._part == "file":
            self._ready.append(bytes(event))
        elif self._part in FIELDS:
            self.fields[self._part] += event
            if len(self.fields[self._part]) > FIELD_LIMIT:
                raise Refusal(400, f"the form's field {self._part} is too long")

    def _begin(self, segment: MultipartSegment) -> None:
        self._part = segment.name
        if self._part == "file":
            if self._has_file:
                raise Refusal(400, "one file at a time: the form has two parts named file")
            self._has_file, self.filename = True, segment.filename
        elif self._part in FIELDS:
            if self._part in self.fields:
                raise Refusal(400, f"the form has the field {self._part} twice")
            self.fields[self._part] = bytearray()


_END = object()


def form_events(body: Body, content_type: str) -> Iterator[Any]:
    kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data":
        raise Refusal(415, "send the file as multipart/form-data, in a part named file")
    try:
        with PushMultipartParser(options.get("boundary", ""), max_segment_count=20) as parser:
            for data in body.pieces():
                yield from parser.parse(data)
    except MultipartError as error:
        raise Refusal(400, f"the form is malformed: {error}") from error


def too_large(limit: int) -> Refusal:
    return Refusal(413, f"the file is larger than {limit} bytes", Code.TOO_LARGE)


def too_slow() -> Refusal:
    return Refusal(408, "the upload did not arrive in time, or not whole: send it again")
