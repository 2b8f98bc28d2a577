"""Loads a mapping: the data file that says what to find in a document and how to name and type it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from convertq.gateway.answer import Refusal
from convertq.gateway.values import TYPES

FOLDER = Path(__file__).parent / "mappings"


@dataclass(frozen=True)
class Field:
    """One value: behind or below a label, or the first cell that has a certain shape."""

    path: str
    type: str = "text"
    required: bool = False
    labels: tuple[re.Pattern[str], ...] = ()
    value: re.Pattern[str] = re.compile("(.+)")
    place: str = "any"
    pattern: re.Pattern[str] | None = None
    within: str = ""
    outside: str = ""


@dataclass(frozen=True)
class Column:
    name: str
    heading: re.Pattern[str]
    type: str = "text"
    required: bool = True


@dataclass(frozen=True)
class Table:
    """Repeated rows: under the headings of columns, or single rows of one shape with named groups."""

    path: str
    columns: tuple[Column, ...]
    required: bool = False
    ends: re.Pattern[str] | None = None
    row: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Mapping:
    name: str
    root: str
    reads: str
    blocks: dict[str, re.Pattern[str]]
    find: tuple[Field | Table, ...]


def mapping_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def load_mapping(name: str) -> Mapping:
    if name not in mapping_names():
        raise Refusal(400, f"unknown mapping {name[:60]!r}; known are {', '.join(mapping_names())}")
    data = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    blocks = {block: shape(regex) for block, regex in data.get("blocks", {}).items()}
    find = tuple(finding(entry) for entry in data.get("find", []))
    return Mapping(name, data["root"], data["reads"], blocks, find)


def finding(entry: dict[str, Any]) -> Field | Table:
    entry = dict(entry)
    for key in ("value", "pattern", "ends", "row"):
        if key in entry:
            entry[key] = shape(entry[key])
    if columns := entry.pop("columns", None):
        return Table(columns=tuple(column(each) for each in columns), **entry)
    entry["labels"] = tuple(shape(label) for label in entry.pop("labels", []))
    return Field(**entry)


def column(entry: dict[str, Any]) -> Column:
    return Column(**{**entry, "heading": shape(entry["heading"])})


def shape(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.IGNORECASE)


def typed(type_name: str, found: str) -> str | None:
    """The value of a found text, or None if the text is not of that type."""
    return TYPES[type_name](found.strip())
