"""The form of a page without a script: many files in one request, each read as it arrives and stored as a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from convertq.cli.words import counted
from convertq.web.context import web
from convertq.web.form import FIELD_LIMIT, PIECE, Body, form_events
from convertq.web.refusal import DatabaseDown, Refusal
from convertq.web.upload import record
from convertq.worker.submission import Intake
from flask import Request
from multipart import MultipartSegment  # type: ignore[import-untyped]

MOST_FILES = 20  # as many of the largest allowed; the script has no such limit


@dataclass
class Receipt:
    sent: int = 0
    refused: int = 0

    def in_words(self) -> dict[str, str]:
        parts = [f"{counted(self.sent, 'file')} uploaded"] if self.sent else []
        if self.refused:
            parts.append(f"{counted(self.refused, 'file')} not accepted")
        return {"tone": "bad" if self.refused else "good", "text": f"{', '.join(parts)}."}


@dataclass
class FilePart:
    """One file in the middle of the form; reads like a file, to the end of its part."""

    events: Iterator[Any]
    filename: str
    fields: dict[str, bytearray] = field(default_factory=dict)
    _ready: bytes = b""

    def read(self, size: int, /) -> bytes:
        if not self._ready:
            event = next(self.events, None)
            self._ready = bytes(event) if event is not None else b""
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


def receive_files(request: Request, owner: str) -> Receipt:
    """Refused files are counted, and are in the list with their reason. Raises when none could be taken."""
    limit = web().config.max_upload_bytes * MOST_FILES
    stream = form_events(Body(request.environ["wsgi.input"], limit), request.headers.get("Content-Type", ""))
    receipt = Receipt()
    fields: dict[str, bytearray] = {}
    for event in stream:
        if not isinstance(event, MultipartSegment):
            continue
        if event.filename:
            _receive(FilePart(stream, event.filename, fields), owner, receipt)
        elif event.name == "mapping":
            fields["mapping"] = bytearray(FilePart(stream, "").read(FIELD_LIMIT))
    if receipt == Receipt():
        raise Refusal(400, "no file was chosen: go back, choose one or more PDF files, and send them again")
    return receipt


def _receive(part: FilePart, owner: str, receipt: Receipt) -> None:
    with Intake(web().files, web().config).receive(part) as received:
        while part.read(PIECE):  # what the intake left of a file that it refused
            pass
        try:
            record(part, received, owner)
            receipt.sent += 1
        except DatabaseDown:
            raise
        except Refusal:
            receipt.refused += 1
