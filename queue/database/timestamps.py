"""Timestamps as PostgreSQL has them: two infinities, and years that Python's calendar does not have.

A timestamp outside the years 2 to 9998 is read as an ExtendedTimestamp (see timestamp_loaders). It compares as the
first or the last timestamp of Python's calendar, is written as PostgreSQL writes it, and is sent back exactly.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self


class ExtendedTimestamp(datetime):
    """A timestamp that Python's calendar cannot hold. Neither a time zone nor a timedelta changes it."""

    text: str  # as PostgreSQL writes it

    @classmethod
    def read(cls, text: str) -> Self:
        is_early = text.startswith(("-", "0001-")) or text.endswith("BC")
        nearest = datetime.min if is_early else datetime.max
        timestamp = cls.combine(nearest.date(), nearest.time(), UTC)
        timestamp.text = text
        return timestamp

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return self.text

    def astimezone(self, tz: tzinfo | None = None) -> Self:
        return self

    def __add__(self, span: timedelta, /) -> Self:
        return self


BEFORE_ALL, AFTER_ALL = ExtendedTimestamp.read("-infinity"), ExtendedTimestamp.read("infinity")


def is_never(timestamp: datetime) -> bool:
    return isinstance(timestamp, ExtendedTimestamp) and timestamp.text == AFTER_ALL.text


def parse_timestamp(text: str) -> datetime:
    """Reads a timestamp as JSON holds it. Raises ValueError."""
    return ExtendedTimestamp.read(text) if text in (BEFORE_ALL.text, AFTER_ALL.text) else datetime.fromisoformat(text)
