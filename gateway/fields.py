"""Finds single values on the rows of a document, by their labels or by their shape."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from convertq.gateway.layout import Cell, Row
from convertq.gateway.mapping import Field, Mapping, typed

BELOW = 2.5  # heights within which a value may stand under its label
BLOCK_GAP = 2.2  # heights of empty space that end a block
ALIGNED = 12.0  # points by which the cells of a block may differ on the left
SEPARATOR = re.compile(r"\s*[:.]?\s*")


@dataclass(frozen=True)
class Document:
    """All rows of a document, with the blocks of cells that the mapping names."""

    rows: list[Row]
    blocks: dict[str, set[Cell]]


def document_of(rows: list[Row], mapping: Mapping) -> Document:
    return Document(rows, {name: block_cells(rows, start) for name, start in mapping.blocks.items()})


def block_cells(rows: list[Row], start: re.Pattern[str]) -> set[Cell]:
    """The cell that matches and those under it, aligned with it, down to the first gap."""
    for index, row in enumerate(rows):
        for anchor in row.cells:
            if start.match(anchor.text):
                return {anchor, *cells_under(rows[index:], anchor)}
    return set()


def cells_under(rows: list[Row], anchor: Cell) -> Iterator[Cell]:
    last = rows[0]
    for row in rows[1:]:
        aligned = [cell for cell in row.cells if abs(cell.left - anchor.left) <= ALIGNED]
        if not row.follows(last, BLOCK_GAP):
            return
        if aligned:
            yield from aligned
            last = row


def find_value(document: Document, field: Field) -> str | None:
    """Labels are tried in their order, the most telling first; a pattern is the last resort."""
    for label in field.labels:
        for index, cell in scope(document, field):
            if match := label.match(cell.text):
                for text in candidates(document.rows, index, cell, match.end(), field.place):
                    if value := shaped(field, text):
                        return value
    if field.pattern:
        for _, cell in scope(document, field):
            if (match := field.pattern.fullmatch(cell.text)) and (value := typed(field.type, match[1])):
                return value
    return None


def scope(document: Document, field: Field) -> Iterator[tuple[int, Cell]]:
    inside = document.blocks.get(field.within)
    outside = document.blocks.get(field.outside, set())
    for index, row in enumerate(document.rows):
        for cell in row.cells:
            if (inside is None or cell in inside) and cell not in outside:
                yield index, cell


def candidates(rows: list[Row], index: int, label: Cell, end: int, place: str) -> Iterator[str]:
    """The rest of the label's own cell, the next cell to the right, the first cell below."""
    if place in ("any", "right"):
        separator = SEPARATOR.match(label.text, end)
        yield label.text[separator.end() if separator else end :]
        yield from (cell.text for cell in rows[index].cells if cell.left > label.left)
    if place in ("any", "below"):
        for row in rows[index + 1 : index + 6]:
            if row.follows(rows[index], BELOW):
                yield from (cell.text for cell in row.cells if cell.overlaps(label))


def shaped(field: Field, text: str) -> str | None:
    match = field.value.fullmatch(text.strip())
    return typed(field.type, match[1]) if match else None
