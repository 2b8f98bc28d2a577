"""The state of workers in shared memory, one row per slot, which they write and their supervisor reads."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from convertq.queue.gateway import DEFAULT_GATEWAY
from convertq.queue.scan_budget import ScanBudget
from convertq.worker.supervisor.call_meter import CallMeter
from convertq.worker.supervisor.permits import Permits
from convertq.worker.supervisor.wake_up import WakeUp

_ROW = struct.Struct("=qqqdqq")  # connected, busy, held, deadline, jobs done, idle
_BEGUN = struct.Struct("=q128s")  # after each row: how many jobs are begun, and their ids
_BEGUN_COUNT, _BEGUN_ID_BYTES = struct.Struct("=q"), 16
_CANCELS = struct.Struct("=q")  # after that: how often the supervisor was notified that one of its jobs is cancelled
_SLOT_BYTES = _ROW.size + _BEGUN.size + _CANCELS.size
_SERVER_BYTES = 512  # for the server's id, at the front
#: A byte each: the supervisor waits for jobs; a worker requests that other hosts be woken; other hosts were idle then.
_WAITING, _REQUESTED, _OTHERS_IDLE = _SERVER_BYTES, _SERVER_BYTES + 1, _SERVER_BYTES + 2
_ALIVE_AT, _ALIVE = _SERVER_BYTES + 8, struct.Struct("=d")
_HELD, _HELD_BYTES = _ALIVE_AT + _ALIVE.size, 256  # why this host claims nothing
_SCANS = _HELD + _HELD_BYTES


class WorkerStatus(NamedTuple):
    connected: bool
    busy: bool
    held: bool  # by this host's disk
    deadline: float  # by the monotonic clock: beyond it the worker is stuck; 0: none
    jobs: int
    idle: bool = False  # it waits for a wake-up


class WorkerStatusTable:
    """Made before the fork. Each row is written by its worker alone, the server's id and the numbers of cancels by the
    supervisor alone."""

    def __init__(
        self, slots: int, routes: Sequence[str] = (DEFAULT_GATEWAY,), adaptive_routes: Sequence[str] = ()
    ) -> None:
        self._rows_at = _SCANS + len(routes) * ScanBudget.SIZE
        meters_at = self._rows_at + slots * _SLOT_BYTES
        self._memory = mmap.mmap(-1, meters_at + len(adaptive_routes) * slots * CallMeter.SIZE)
        self.meters = {
            route: [CallMeter(self._memory, meters_at + (n * slots + at) * CallMeter.SIZE) for at in range(slots)]
            for n, route in enumerate(adaptive_routes)
        }
        self._slots = slots
        self._padded_server_id, self._server_id = b"", ""
        self.scans_by_route = {
            route: ScanBudget(self._memory, _SCANS + n * ScanBudget.SIZE) for n, route in enumerate(routes)
        }
        self.permits = Permits(slots)
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

    @property
    def alive_at(self) -> float:
        """When the supervisor's loop was last known to run, by the monotonic clock."""
        alive_at: float = _ALIVE.unpack_from(self._memory, _ALIVE_AT)[0]
        return alive_at

    @alive_at.setter
    def alive_at(self, value: float) -> None:
        _ALIVE.pack_into(self._memory, _ALIVE_AT, value)

    @property
    def connected_workers(self) -> int:
        return sum(self.read(slot).connected for slot in range(1, self._slots + 1))

    def read(self, slot: int) -> WorkerStatus:
        connected, busy, held, deadline, jobs, idle = _ROW.unpack_from(self._memory, self._offset(slot))
        return WorkerStatus(bool(connected), bool(busy), bool(held), deadline, jobs, bool(idle))

    def write(self, slot: int, row: WorkerStatus) -> None:
        _ROW.pack_into(self._memory, self._offset(slot), *row)

    def clear(self, slot: int) -> None:
        self.write(slot, WorkerStatus(connected=False, busy=False, held=False, deadline=0, jobs=0))

    @property
    def scans(self) -> ScanBudget:
        """The first one, which also bounds what does not depend on a gateway, such as reclaiming."""
        return next(iter(self.scans_by_route.values()))

    def _offset(self, slot: int) -> int:
        return self._rows_at + (slot - 1) * _SLOT_BYTES

    def read_begun(self, slot: int) -> list[UUID]:
        """The jobs that a worker has begun and not settled. They outlive it: only their attempts count."""
        count, ids = _BEGUN.unpack_from(self._memory, self._offset(slot) + _ROW.size)
        size = _BEGUN_ID_BYTES
        return [UUID(bytes=ids[size * n : size * n + size]) for n in range(count)]

    def write_begun(self, slot: int, ids: Sequence[UUID]) -> None:
        packed = b"".join(job_id.bytes for job_id in ids)
        _BEGUN.pack_into(self._memory, self._offset(slot) + _ROW.size, len(ids), packed)

    def add_begun(self, slot: int, job_id: UUID, place: int) -> None:
        """Adds one after the first `place` jobs. The id is written before the number that says that it is there."""
        offset = self._offset(slot) + _ROW.size
        ids = offset + _BEGUN_COUNT.size + _BEGUN_ID_BYTES * place
        self._memory[ids : ids + _BEGUN_ID_BYTES] = job_id.bytes
        _BEGUN_COUNT.pack_into(self._memory, offset, place + 1)

    # -- cancelled jobs --

    def read_cancels(self, slot: int) -> int:
        """It increases with each notification: a worker compares it with the number that it has seen."""
        number: int = _CANCELS.unpack_from(self._memory, self._cancels_offset(slot))[0]
        return number

    def count_cancel(self, holder: str) -> None:
        """`holder` is from outside: one of another host, or of no worker at all, is ignored."""
        server_id, _, slot = holder.rpartition("/")
        if server_id == self.server_id and slot.isascii() and slot.isdecimal() and 1 <= int(slot) <= self._slots:
            self._add_cancel(int(slot))

    def count_possible_cancels(self) -> None:
        """For every worker: notifications may have been missed."""
        for slot in range(1, self._slots + 1):
            self._add_cancel(slot)

    def _add_cancel(self, slot: int) -> None:
        _CANCELS.pack_into(self._memory, self._cancels_offset(slot), self.read_cancels(slot) + 1)

    def _cancels_offset(self, slot: int) -> int:
        return self._offset(slot) + _ROW.size + _BEGUN.size

    # -- why this host claims nothing --

    @property
    def has_held_worker(self) -> bool:
        return any(self.read(slot).held for slot in range(1, self._slots + 1))

    @property
    def held_reason(self) -> str:
        """As the last worker that was held has written it."""
        return self._memory[_HELD:_SCANS].rstrip(b"\0").decode(errors="replace")

    @held_reason.setter
    def held_reason(self, reason: str) -> None:
        self._memory[_HELD:_SCANS] = reason.encode()[:_HELD_BYTES].ljust(_HELD_BYTES, b"\0")

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
