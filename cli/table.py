"""Aligned columns that never wrap: on a terminal the widest ones that may be are cut, in a pipe nothing is."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Collection, Sequence

GAP = "  "
NARROWEST = 6


def terminal_width() -> int | None:
    """None: not a terminal, so there is no edge."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, elastic: Collection[str] = (), width: int | None = None
) -> list[str]:
    """Lines with the headings first; columns named in `elastic` are cut first when `width` is not enough."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(columns(line[at]) for line in lines) for at in range(len(headings))]
    if width is not None:
        _shrink(widths, [at for at, heading in enumerate(headings) if heading in elastic], width)
    drawn = [GAP.join(_fit(cell, room) for cell, room in zip(line, widths, strict=True)).rstrip() for line in lines]
    return drawn if width is None else [cut(line, width) for line in drawn]


def _shrink(widths: list[int], elastic: list[int], width: int) -> None:
    while elastic and sum(widths) + len(GAP) * (len(widths) - 1) > width:
        widest = max(elastic, key=lambda at: widths[at])
        if widths[widest] <= NARROWEST:
            return
        widths[widest] -= 1


def _fit(cell: str, room: int) -> str:
    text = cut(cell, room)
    return text + " " * (room - columns(text))


def cut(text: str, room: int) -> str:
    if columns(text) <= room:
        return text
    kept, used = "", 0
    for char in text:
        used += columns(char)
        if used > room - 1:
            break
        kept += char
    return kept + "…"


def columns(text: str) -> int:
    """Terminal cells: Chinese takes two, an accent that joins the letter before it none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
