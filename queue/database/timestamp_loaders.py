"""How a connection reads timestamps that Python's calendar cannot hold, and sends them back."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from convertq.queue.database.timestamps import ExtendedTimestamp
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format

TIMESTAMPTZ = psycopg.adapters.types["timestamptz"].oid
#: Within these years a timestamp can be moved to any time zone without leaving the calendar.
FIRST_YEAR, LAST_YEAR = 2, 9998
#: The binary format counts microseconds from this day; its extremes are the infinities.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
INFINITIES = {2**63 - 1: "infinity", -(2**63): "-infinity"}
#: The Gregorian calendar repeats itself after this period.
CYCLE_YEARS = 400
CYCLE_MICROSECONDS = 146_097 * 86_400 * 1_000_000


class TextLoader(Loader):
    """Uses the loader of psycopg, which is written in C, for every timestamp that it can read."""

    format = Format.TEXT

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        usual = psycopg.adapters.get_loader(oid, self.format)
        assert usual is not None
        self._usual = usual(oid, context)

    def load(self, data: Buffer) -> datetime:
        try:
            timestamp: datetime = self._usual.load(data)
        except psycopg.DataError:
            return ExtendedTimestamp.read(self._text(data))
        return timestamp if FIRST_YEAR <= timestamp.year <= LAST_YEAR else ExtendedTimestamp.read(self._text(data))

    def _text(self, data: Buffer) -> str:
        return bytes(data).decode()


class BinaryLoader(TextLoader):
    format = Format.BINARY

    def _text(self, data: Buffer) -> str:
        [count] = struct.unpack("!q", bytes(data))
        if count in INFINITIES:
            return INFINITIES[count]
        cycles, rest = divmod(count, CYCLE_MICROSECONDS)
        timestamp = EPOCH + timedelta(microseconds=rest)
        year = timestamp.year + cycles * CYCLE_YEARS
        written, era = (f"{year:04}", "") if year > 0 else (f"{1 - year:04}", " BC")
        return f"{written}{timestamp.isoformat(' ')[4:]}{era}"


class ExtendedTimestampDumper(Dumper):
    oid = TIMESTAMPTZ

    def dump(self, timestamp: ExtendedTimestamp) -> Buffer:
        return timestamp.text.encode()


class TimestampAdapters:
    """The adaptation context of our connections; other connections of the process stay as they are.

    It is made once, before workers are forked: adapters of a connection's own would cost each worker half a megabyte.
    """

    connection: psycopg.Connection[Any] | None = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_loader(TIMESTAMPTZ, TextLoader)
        self.adapters.register_loader(TIMESTAMPTZ, BinaryLoader)
        self.adapters.register_dumper(ExtendedTimestamp, ExtendedTimestampDumper)


TIMESTAMP_ADAPTERS = TimestampAdapters()
