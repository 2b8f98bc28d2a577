"""The form of a page without a script: many files in one request, each read as it arrives and stored as a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from convertq.web.context import web
from convertq.web.form import FIELD_LIMIT, OVERHEAD, Body, form_events
from convertq.web.refusal import Refusal
from convertq.web.upload import not_stored, record
from convertq.worker.errors import Code
from convertq.worker.submission import REFUSALS, Intake
from convertq.worker.words import counted, size
from flask import Request
from multipart import MultipartSegment  # type: ignore[import-untyped]

MOST_FILES = 18  # in one form; the script sends each by itself, and has no such limit


@dataclass
class Receipt:
    """How many files went which way; `full`: not taken, because so many of the visitor's are unfinished."""

    sent: int = 0
    refused: int = 0
    full: int = 0

    def in_words(self) -> dict[str, str]:
        parts = {
            "uploaded": self.sent,
            "not accepted": self.refused,
            "not taken, because many of yours are unfinished: send them again later": self.full,
        }
        said = ", ".join(f"{counted(number, 'file')} {what}" for what, number in parts.items() if number)
        return {"tone": "bad" if self.refused or self.full else "good", "text": f"{said}."}


@dataclass
class FilePart:
    """One file in the middle of the form; reads like a file, to the end of its part."""

    events: Iterator[Any]
    filename: str
    fields: dict[str, bytearray] = field(default_factory=dict)
    _ready: bytes = b""
    _ended: bool = False

    def read(self, size: int, /) -> bytes:
        while not self._ready and not self._ended:
            event = next(self.events, None)
            self._ended = event is None  # what comes next belongs to the next part
            self._ready = bytes(event or b"")
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


def receive_files(request: Request, owner: str) -> Receipt:
    """Refused files are counted, and are in the list with their reason. Raises when none could be taken."""
    limit = web().config.max_upload_bytes * MOST_FILES
    if (request.content_length or 0) > limit + OVERHEAD:
        raise Refusal(413, f"these files are larger than {size(limit)} together: send fewer at a time", Code.TOO_LARGE)
    body = Body(request.environ["wsgi.input"], limit, request.content_length)
    stream = form_events(body, request.headers.get("Content-Type", ""))
    receipt, files = Receipt(), 0
    fields: dict[str, bytearray] = {}
    for event in stream:
        if not isinstance(event, MultipartSegment):
            continue
        if event.name == "mapping":
            fields["mapping"] = bytearray(FilePart(stream, "").read(FIELD_LIMIT))
        elif event.name == "file" and event.filename:
            files += 1
            if files > MOST_FILES:
                raise Refusal(400, f"the first {MOST_FILES} files were taken: send the others in a form of their own")
            _receive(FilePart(stream, event.filename, fields), owner, receipt)
    if not files:
        raise Refusal(400, "no file was chosen: go back, choose one or more PDF files, and send them again")
    return receipt


def _receive(part: FilePart, owner: str, receipt: Receipt) -> None:
    try:
        with Intake(web().files, web().config).receive(part) as received:
            record(part, received, owner)
        receipt.sent += 1
    except OSError as error:
        raise not_stored(error) from error
    except Refusal as refusal:
        if refusal.code in REFUSALS:
            receipt.refused += 1
        elif refusal.status == 429:
            receipt.full += 1
        else:
            raise
