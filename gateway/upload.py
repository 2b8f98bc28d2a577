"""Takes in what a client sends for conversion, straight to disk: a form with a PDF, or JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convertq.gateway.answer import Refusal
from convertq.gateway.mapping import load_mapping
from convertq.gateway.request_body import RequestBody, too_large
from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

DEFAULT_MAPPING = "pt_simon_invoice_v1"
FORM_OVERHEAD_BYTES = 64 * 1024  # boundaries, headers and small fields around the largest allowed file
FIELD_LIMIT_BYTES = 1024
PDF_MARK_WITHIN_BYTES = 1024
PIECE = 64 * 1024


@dataclass(frozen=True)
class Upload:
    kind: str
    sha256: str
    mapping: str
    pretty: bool


class Spool:
    """A file being received: written, hashed and measured in one go."""

    def __init__(self, target: Path, limit: int) -> None:
        self.file = target.open("wb")
        self.hash = hashlib.sha256()
        self.limit = limit
        self.size = 0
        self.beginning = b""

    def write(self, data: bytes | bytearray) -> None:
        self.size += len(data)
        if self.size > self.limit:
            raise too_large(self.limit)
        if len(self.beginning) < PDF_MARK_WITHIN_BYTES:
            self.beginning = (self.beginning + data)[:PDF_MARK_WITHIN_BYTES]
        self.hash.update(data)
        self.file.write(data)


def receive_form(body: RequestBody, content_type: str, target: Path, max_bytes: int) -> Upload:
    """Reads the whole form, so that the connection can be used again, and then judges it."""
    spool = Spool(target, max_bytes)
    with spool.file:
        fields = read_form(body, content_type, spool)
    if "file" not in fields:
        raise Refusal(400, "the form has no part named file")
    if b"%PDF-" not in spool.beginning:
        raise Refusal(415, "the file is not a PDF")
    return checked("pdf", spool, fields)


def receive_json(body: RequestBody, options: dict[str, str], target: Path, max_bytes: int) -> Upload:
    spool = Spool(target, max_bytes)
    with spool.file:
        while data := body.read(PIECE):
            spool.write(data)
    return checked("json", spool, options)


def read_form(body: RequestBody, content_type: str, spool: Spool) -> dict[str, str]:
    """The small fields by name; the bytes of the part named file go to the spool."""
    fields: dict[str, bytearray] = {}
    name = None
    for event in form_events(body, content_type):
        if event is None:
            name = None
        elif not isinstance(event, (bytes, bytearray)):
            name = event.name
            if name in fields:
                raise Refusal(400, f"the form has two parts named {name[:50]!r}")
            fields[name] = bytearray()
        elif name == "file":
            spool.write(event)
        elif name is not None:
            fields[name] += event
            if len(fields[name]) > FIELD_LIMIT_BYTES:
                raise Refusal(400, f"the form field {name[:50]!r} is too long")
    return {name: bytes(value).decode("utf-8", "replace") for name, value in fields.items()}


def form_events(body: RequestBody, content_type: str) -> Iterator[MultipartSegment | bytearray | bytes | None]:
    boundary = parse_options_header(content_type)[1].get("boundary", "")
    try:
        with PushMultipartParser(boundary, max_segment_count=20) as parser:
            while data := body.read(PIECE):
                yield from parser.parse(data)
    except MultipartError as error:
        raise Refusal(400, f"the form is malformed: {error}") from error


def checked(kind: str, spool: Spool, options: dict[str, str]) -> Upload:
    mapping = options.get("mapping") or DEFAULT_MAPPING
    load_mapping(mapping)
    pretty = options.get("pretty") or "1"
    if pretty not in ("0", "1"):
        raise Refusal(400, "pretty is 1 or 0")
    return Upload(kind, spool.hash.hexdigest(), mapping, pretty == "1")
