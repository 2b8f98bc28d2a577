"""The state of workers in shared memory, one row per slot, which they write and their supervisor reads."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from convertq.queue.scan_budget import ScanBudget
from convertq.worker.supervisor.wake_up import WakeUp

_ROW = struct.Struct("=qqqdqq")  # connected, busy, held, deadline, jobs done, idle
_BEGUN = struct.Struct("=q128s")  # after each row: how many jobs are begun, and their ids
_SERVER_BYTES = 512  # for the server's id, at the front
#: A byte each: the supervisor waits for jobs; a worker requests that other hosts be woken; other hosts were idle then.
_WAITING, _REQUESTED, _OTHERS_IDLE = _SERVER_BYTES, _SERVER_BYTES + 1, _SERVER_BYTES + 2
_SCANS = _SERVER_BYTES + 8
_ROWS = _SCANS + ScanBudget.SIZE


class WorkerStatus(NamedTuple):
    connected: bool
    busy: bool
    held: bool  # by this host's disk
    deadline: float  # by the monotonic clock: beyond it the worker is stuck; 0: none
    jobs: int
    idle: bool = False  # it waits for a wake-up


class WorkerStatusTable:
    """Made before the fork. Each row is written by its worker alone, the server's id by the supervisor alone."""

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, _ROWS + slots * (_ROW.size + _BEGUN.size))
        self._slots = slots
        self._padded_server_id, self._server_id = b"", ""
        self.scans = ScanBudget(self._memory, _SCANS)
        self.supervisor_wake_up = WakeUp()  # posted by workers that have written something for the supervisor

    @property
    def server_id(self) -> str:
        """It is decoded again only when it has changed: every claim reads it."""
        if (padded := self._memory[:_SERVER_BYTES]) != self._padded_server_id:
            self._padded_server_id, self._server_id = padded, padded.rstrip(b"\0").decode()
        return self._server_id

    @server_id.setter
    def server_id(self, value: str) -> None:
        self._memory[:_SERVER_BYTES] = value.encode().ljust(_SERVER_BYTES, b"\0")

    def read(self, slot: int) -> WorkerStatus:
        connected, busy, held, deadline, jobs, idle = _ROW.unpack_from(self._memory, self._offset(slot))
        return WorkerStatus(bool(connected), bool(busy), bool(held), deadline, jobs, bool(idle))

    def write(self, slot: int, row: WorkerStatus) -> None:
        _ROW.pack_into(self._memory, self._offset(slot), *row)

    def clear(self, slot: int) -> None:
        self.write(slot, WorkerStatus(connected=False, busy=False, held=False, deadline=0, jobs=0))

    @staticmethod
    def _offset(slot: int) -> int:
        return _ROWS + (slot - 1) * (_ROW.size + _BEGUN.size)

    def read_begun(self, slot: int) -> list[UUID]:
        """The jobs that a worker has begun and not settled. They outlive it: only their attempts count."""
        count, ids = _BEGUN.unpack_from(self._memory, self._offset(slot) + _ROW.size)
        return [UUID(bytes=ids[16 * n : 16 * n + 16]) for n in range(count)]

    def write_begun(self, slot: int, ids: Sequence[UUID]) -> None:
        packed = b"".join(job_id.bytes for job_id in ids)
        _BEGUN.pack_into(self._memory, self._offset(slot) + _ROW.size, len(ids), packed)

    # -- who waits for jobs --

    @property
    def has_idle_worker(self) -> bool:
        return any(self.read(slot).idle for slot in range(1, self._slots + 1))

    @property
    def has_claiming_worker(self) -> bool:
        """Whether a worker may be about to claim a job: it is connected, and neither busy nor idle."""
        rows = (self.read(slot) for slot in range(1, self._slots + 1))
        return any(row.connected and not (row.busy or row.idle or row.held) for row in rows)

    @property
    def is_waiting(self) -> bool:
        """Whether this host is notified of jobs as well as it can be: an idle worker need not wake its supervisor."""
        return self._memory[_WAITING] == 1

    @is_waiting.setter
    def is_waiting(self, value: bool) -> None:
        self._memory[_WAITING] = int(value)

    @property
    def are_other_hosts_idle(self) -> bool:
        """Whether another host waited for jobs when the supervisor looked last."""
        return self._memory[_OTHERS_IDLE] == 1

    @are_other_hosts_idle.setter
    def are_other_hosts_idle(self, value: bool) -> None:
        self._memory[_OTHERS_IDLE] = int(value)

    def request_other_hosts(self) -> None:
        """Called by a worker that leaves jobs in the queue while no other worker of its host is idle."""
        if not self.are_other_hosts_requested:
            self.are_other_hosts_requested = True
            self.supervisor_wake_up.post()

    @property
    def are_other_hosts_requested(self) -> bool:
        return self._memory[_REQUESTED] == 1

    @are_other_hosts_requested.setter
    def are_other_hosts_requested(self, value: bool) -> None:
        self._memory[_REQUESTED] = int(value)
