"""Which colour a word has, and how it is added to an aligned line. click removes colours where there are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click
from convertq.queue.status import JobStatus

STATUSES: dict[str, str] = {
    JobStatus.QUEUED: "yellow",
    JobStatus.PROCESSING: "cyan",
    JobStatus.COMPLETE: "green",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "magenta",
}
EVENTS = {**STATUSES, "retry": "yellow", "requeued": "yellow", "reclaimed": "yellow"}
QUEUE_EVENTS = {
    "breaker_opened": "red", "held": "red", "paused": "yellow",
    "breaker_closed": "green", "released": "green", "resumed": "green",
}  # fmt: skip


def painted(lines: Sequence[str], words: Iterable[str], colours: Mapping[str, str]) -> Iterator[str]:
    """A table's heading, and its rows, each with its word in colour."""
    yield click.style(lines[0], dim=True)
    for line, word in zip(lines[1:], words, strict=True):
        yield paint(line, word, colours)


def paint(line: str, word: str, colours: Mapping[str, str]) -> str:
    """Colours the word only where it is a whole cell: a host may be called dead-sea."""
    if word not in colours:
        return line
    return re.sub(rf"(?<=  ){re.escape(word)}(?=  |$)", click.style(word, fg=colours[word]), line, count=1)
