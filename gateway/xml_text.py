"""Writes a document (nested dicts, lists and strings) as XML that any parser accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

from convertq.gateway.answer import Refusal

ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
DEPTH_LIMIT = 100


def without_illegal(text: str) -> str:
    """The text without the characters that XML 1.0 cannot hold, not even escaped."""
    return ILLEGAL.sub("", text)


def xml_pieces(document: dict[str, Any], pretty: bool) -> Iterator[str]:
    """The XML of a document with one root: a list repeats its element, None is an empty one."""
    end = "\n" if pretty else ""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    for name, value in document.items():
        yield from element(name, value, 0, "  " if pretty else "", end)


def element(name: str, value: Any, depth: int, indent: str, end: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, list):
                raise Refusal(422, f"{name[:50]!r}: a list inside a list has no element name")
            yield from element(name, item, depth, indent, end)
        return
    margin = indent * depth
    if isinstance(value, dict):
        yield from branch(name, value, depth, indent, end)
    elif text := text_of(value):
        yield f"{margin}<{tag(name)}>{text}</{name}>{end}"
    else:
        yield f"{margin}<{tag(name)}/>{end}"


def branch(name: str, children: dict[str, Any], depth: int, indent: str, end: str) -> Iterator[str]:
    if depth > DEPTH_LIMIT:
        raise Refusal(422, f"more than {DEPTH_LIMIT} levels")
    margin = indent * depth
    if not any(value != [] for value in children.values()):
        yield f"{margin}<{tag(name)}/>{end}"
        return
    yield f"{margin}<{tag(name)}>{end}"
    for child, value in children.items():
        yield from element(child, value, depth + 1, indent, end)
    yield f"{margin}</{name}>{end}"


def tag(name: str) -> str:
    if not NAME.fullmatch(name):
        raise Refusal(422, f"{name[:50]!r} cannot be the name of an XML element")
    return name


def text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(without_illegal(str(value)), {"\r": "&#13;"})
