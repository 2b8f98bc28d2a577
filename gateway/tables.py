"""Finds the rows of a table by the headings of its columns, over as many pages as it takes."""

from __future__ import annotations

from collections.abc import Mapping

from convertq.gateway.layout import Cell, Row
from convertq.gateway.mapping import Column, Table, typed

Item = dict[str, str]
CONTINUED = 1.8  # heights within which a row with nothing but a description belongs to the row above


def find_items(rows: list[Row], table: Table) -> list[Item]:
    return items_under_headings(rows, table) or items_by_shape(rows, table)


def items_under_headings(rows: list[Row], table: Table) -> list[Item]:
    items: list[Item] = []
    headings: dict[str, Cell] = {}
    last: Row | None = None
    for row in rows:
        if found := headings_of(row, table.columns):
            headings, last = found, None
        elif not headings:
            continue
        elif table.ends and table.ends.match(row.text):
            headings = {}
        elif item := item_of(texts_by_column(row, headings), table.columns):
            items.append(item)
            last = row
        elif last and row.follows(last, CONTINUED) and (more := continuation(row, headings, table.columns)):
            items[-1][more[0]] += f" {more[1]}"
            last = row
    return items


def headings_of(row: Row, columns: tuple[Column, ...]) -> dict[str, Cell]:
    """Where each column stands, if this row names every column that the table needs."""
    found: dict[str, Cell] = {}
    for cell in row.cells:
        for column in columns:
            if column.name not in found and column.heading.fullmatch(cell.text):
                found[column.name] = cell
                break
    return found if all(column.name in found for column in columns if column.required) else {}


def texts_by_column(row: Row, headings: dict[str, Cell]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for cell in row.cells:
        name = min(headings, key=lambda heading: distance(cell, headings[heading]))
        texts[name] = f"{texts[name]} {cell.text}" if name in texts else cell.text
    return texts


def distance(cell: Cell, heading: Cell) -> float:
    """Columns are aligned left, right or on their middle: the best of the three counts."""
    return min(
        abs(cell.left - heading.left),
        abs(cell.right - heading.right),
        abs(cell.left + cell.right - heading.left - heading.right) / 2,
    )


def item_of(texts: Mapping[str, str | None], columns: tuple[Column, ...]) -> Item | None:
    """The typed values in the order of the columns; None if one is missing or of another type."""
    item: Item = {}
    for column in columns:
        text = texts.get(column.name)
        value = typed(column.type, text) if text else None
        if value is not None:
            item[column.name] = value
        elif text or column.required:
            return None
    return item


def continuation(row: Row, headings: dict[str, Cell], columns: tuple[Column, ...]) -> tuple[str, str] | None:
    """The column and the words of a row that fills one text column and nothing else."""
    texts = texts_by_column(row, headings)
    wide = [column.name for column in columns if column.type == "text" and column.required]
    return (wide[0], texts[wide[0]]) if wide and set(texts) == {wide[0]} else None


def items_by_shape(rows: list[Row], table: Table) -> list[Item]:
    if not table.row:
        return []
    matches = (table.row.fullmatch(row.text) for row in rows)
    found = (item_of(match.groupdict(), table.columns) for match in matches if match)
    return [item for item in found if item]
