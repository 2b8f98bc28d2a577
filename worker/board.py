"""What workers tell their supervisor without a message: shared memory with one row per slot."""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

_ROW = struct.Struct("=qqqdq")  # connected, busy, held, deadline, jobs done
STUCK_AFTER = 30.0  # s that a worker gets beyond what it has to do, such as the gateway's timeout
_SERVER = 512  # bytes for the server's id, at the front


class Row(NamedTuple):
    connected: bool
    busy: bool
    held: bool  # by this host's disk
    deadline: float  # by the monotonic clock: past it, the worker is stuck; 0: none
    jobs: int


class Board:
    """Made before the fork. Each row has one writer, its worker; the server's id has one, the supervisor."""

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, _SERVER + slots * _ROW.size)

    @property
    def server_id(self) -> str:
        return bytes(self._memory[:_SERVER]).rstrip(b"\0").decode()

    @server_id.setter
    def server_id(self, value: str) -> None:
        self._memory[:_SERVER] = value.encode().ljust(_SERVER, b"\0")

    def read(self, slot: int) -> Row:
        connected, busy, held, deadline, jobs = _ROW.unpack_from(self._memory, self._offset(slot))
        return Row(bool(connected), bool(busy), bool(held), deadline, jobs)

    def write(self, slot: int, row: Row) -> None:
        _ROW.pack_into(self._memory, self._offset(slot), *row)

    def clear(self, slot: int) -> None:
        self.write(slot, Row(connected=False, busy=False, held=False, deadline=0, jobs=0))

    @staticmethod
    def _offset(slot: int) -> int:
        return _SERVER + (slot - 1) * _ROW.size
