"""Which colour a word has, and how it comes into a line that is aligned already. click drops it where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

STATUSES = {"queued": "yellow", "processing": "cyan", "complete": "green", "failed": "red"}
EVENTS = {**STATUSES, "retry": "yellow", "requeued": "yellow", "reclaimed": "yellow"}


def painted(lines: Sequence[str], words: Iterable[str], colours: Mapping[str, str]) -> Iterator[str]:
    """A table's heading, and its rows with each row's word in its colour."""
    yield click.style(lines[0], dim=True)
    for line, word in zip(lines[1:], words, strict=True):
        yield paint(line, word, colours)


def paint(line: str, word: str, colours: Mapping[str, str]) -> str:
    """Only where it is a cell of its own: a host may be called dead-sea."""
    if word not in colours:
        return line
    return re.sub(rf"(?<=  ){re.escape(word)}(?=  |$)", click.style(word, fg=colours[word]), line, count=1)
