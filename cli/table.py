"""Aligned columns that never wrap: on a terminal, the widest elastic columns are cut; in a pipe, none is."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import TextIO

GAP = "  "
NARROWEST, READABLE = 6, 16


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Columns of stdout, or of the given stream; None where it is not a terminal."""
    if stream is None:
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return (os.get_terminal_size(stream.fileno()).columns or 80) if stream.isatty() else None


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    elastic: Collection[str] = (),
    optional: Sequence[str] = (),
    width: int | None = None,
) -> list[str]:
    """Lines with the headings first. Where `width` is not enough, `optional` columns go and `elastic` ones are cut."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(columns(line[at]) for line in lines) for at in range(len(headings))]
    if width is not None:
        kept = _kept(headings, widths, elastic, optional, width)
        headings, widths = [headings[at] for at in kept], [widths[at] for at in kept]
        lines = [[line[at] for at in kept] for line in lines]
        _shrink(widths, [at for at, heading in enumerate(headings) if heading in elastic], width)
    drawn = [GAP.join(_fit(cell, room) for cell, room in zip(line, widths, strict=True)).rstrip() for line in lines]
    return drawn if width is None else [cut(line, width) for line in drawn]


def _kept(
    headings: Sequence[str], widths: Sequence[int], elastic: Collection[str], optional: Sequence[str], width: int
) -> list[int]:
    """The indexes of the columns that stay, so that the elastic ones remain readable."""
    wanted = {
        heading: min(room, READABLE) if heading in elastic else room
        for heading, room in zip(headings, widths, strict=True)
    }
    for heading in optional:
        if _in_all(list(wanted.values())) <= width:
            break
        del wanted[heading]
    return [at for at, heading in enumerate(headings) if heading in wanted]


def _in_all(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _shrink(widths: list[int], elastic: list[int], width: int) -> None:
    while elastic and _in_all(widths) > width:
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


def hang(text: str, indent: int, width: int | None) -> Iterator[str]:
    """Lines of at most `width` columns, those after the first indented. A word that is too long is split."""
    if width is None or columns(text) <= width - indent:
        yield text
        return
    room = max(20, width - indent) // (1 if text.isascii() else 2)  # textwrap counts characters; some take two cells
    first, *rest = textwrap.wrap(text, room, break_on_hyphens=False)
    yield first
    yield from (" " * indent + line for line in rest)


def columns(text: str) -> int:
    """Terminal cells: Chinese takes two, an accent that joins the letter before it none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
