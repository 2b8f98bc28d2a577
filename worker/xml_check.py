"""The gate before "done": a body is XML, whole and well-formed, and declares no entities; checked as it streams by."""

from __future__ import annotations

from typing import BinaryIO
from xml.parsers import expat

from convertq.worker.files import AnyPath, open_regular

CHUNK = 64 * 1024


class NotXml(ValueError):
    """One line that says why."""


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
    while chunk := source.read(CHUNK):
        check.feed(chunk)
    check.finish()


def is_whole(result: AnyPath) -> bool:
    """Whether a file in the place of a result is one."""
    try:
        with open_regular(result) as file:
            check_file(file)
    except (OSError, NotXml):
        return False
    return True


def _refuse_entity(*declaration: object) -> None:
    # entities are how a small document becomes a large one, or one that reads files where it is opened
    raise NotXml("its DOCTYPE declares entities")
