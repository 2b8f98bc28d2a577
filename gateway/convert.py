"""Turns a PDF into a document by a mapping, and a document into XML or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convertq.gateway.answer import Refusal
from convertq.gateway.fields import document_of, find_value
from convertq.gateway.layout import rows_of
from convertq.gateway.mapping import Mapping, Table
from convertq.gateway.paragraphs import paragraphs_of
from convertq.gateway.pdf_text import Line, read_pages
from convertq.gateway.tables import find_items
from convertq.gateway.xml_text import xml_pieces

Tree = dict[str, Any]


def pdf_to_tree(pdf: Path, mapping: Mapping) -> Tree:
    pages = list(read_pages(pdf))
    if not any(pages):
        raise Refusal(422, "the PDF has no text: it looks like a scan, and this gateway does no OCR")
    tree = text_tree(pages) if mapping.reads == "paragraphs" else layout_tree(pages, mapping)
    return {mapping.root: tree}


def text_tree(pages: list[list[Line]]) -> Tree:
    numbered = enumerate(pages, start=1)
    return {
        "pages": str(len(pages)),
        "page": [{"number": str(number), "paragraph": paragraphs_of(lines)} for number, lines in numbered],
    }


def layout_tree(pages: list[list[Line]], mapping: Mapping) -> Tree:
    rows = [row for page, lines in enumerate(pages) for row in rows_of(page, lines)]
    document = document_of(rows, mapping)
    tree: Tree = {}
    missing = []
    for wanted in mapping.find:
        found = find_items(rows, wanted) if isinstance(wanted, Table) else find_value(document, wanted)
        if found:
            put(tree, wanted.path, found)
        elif wanted.required:
            missing.append(wanted.path)
    if missing:
        raise Refusal(422, f"{mapping.name} does not find in this PDF: {', '.join(missing)}")
    return tree


def put(tree: Tree, path: str, value: Any) -> None:
    *parents, name = path.split("/")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[name] = value


def json_to_tree(source: Path, mapping: Mapping) -> Tree:
    try:
        # Numbers stay the text they were written as: 10.50 must not become 10.5.
        tree = json.loads(source.read_bytes(), parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is not JSON that can be read") from error
    if not isinstance(tree, dict) or list(tree) != [mapping.root] or isinstance(tree[mapping.root], list):
        raise Refusal(422, f'{mapping.name} wants one JSON object of the form {{"{mapping.root}": ...}}')
    return tree


def write_tree(tree: Tree, target: Path, output: str, pretty: bool) -> None:
    with target.open("w", encoding="utf-8", newline="") as file:
        file.writelines(xml_pieces(tree, pretty) if output == "xml" else json_pieces(tree, pretty))


def json_pieces(tree: Tree, pretty: bool) -> Iterator[str]:
    yield from json.JSONEncoder(ensure_ascii=False, indent=2 if pretty else None).iterencode(tree)
    yield "\n"
