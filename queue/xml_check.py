"""The check of a result as it arrives: it must be complete, well-formed XML without entity declarations."""

from __future__ import annotations

from typing import BinaryIO
from xml.parsers import expat

CHUNK_BYTES = 64 * 1024


class NotXml(ValueError):
    """The message is one line that says why."""


class XmlCheck:
    def __init__(self) -> None:
        self._parser = expat.ParserCreate()
        self._parser.EntityDeclHandler = _refuse_entity
        self._seen = False

    def feed(self, chunk: bytes) -> None:
        self._seen = self._seen or bool(chunk)
        self._parse(chunk, last=False)

    def finish(self) -> None:
        if not self._seen:
            raise NotXml("the body is empty")
        self._parse(b"", last=True)

    def _parse(self, chunk: bytes, *, last: bool) -> None:
        try:
            self._parser.Parse(chunk, last)
        except expat.ExpatError as error:
            raise NotXml(f"not well-formed XML: {expat.errors.messages[error.code]} in line {error.lineno}") from None
        except NotXml:
            raise
        except (LookupError, ValueError):
            raise NotXml("its encoding is not one that can be read") from None


def check_file(source: BinaryIO) -> None:
    check = XmlCheck()
    while chunk := source.read(CHUNK_BYTES):
        check.feed(chunk)
    check.finish()


def _refuse_entity(*declaration: object) -> None:
    # With entities, a small document can become a very large one, or read files of the host that opens it.
    raise NotXml("its DOCTYPE declares entities")
