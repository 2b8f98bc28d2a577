"""The scan budget of a host: where its claims start in the index, and how often they may start at its beginning.

While another session holds an old snapshot, every job that was claimed since leaves a dead entry in the index, and a
claim that starts at the beginning reads all of them. The workers of a host together spend one part in SHARE of one
core on such scans. In between, claims start at a position after the dead entries.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any, NamedTuple
from uuid import UUID

#: One scan from the start that takes a second is followed by so many seconds without one.
SHARE = 80
#: The same when a job is known to be there (a notification, a promoted retry) and is not found after the position.
SHARE_WHEN_KNOWN = 10
#: While a claim reads no more index entries, every claim starts at the beginning and the order is strict.
FEW_ENTRIES = 1000
#: While a claim reads no more (in about two milliseconds), its position is kept, and a known job may be searched for.
MANY_ENTRIES = 10_000
#: Where owners take turns, the position is at least so many entries before the last claim: a new job's turn may be just
#: before that of the jobs that were being claimed when it was queued.
TRAIL_ENTRIES = 400
#: Jobs before the position (older, more urgent) are found after this time at the latest.
SCAN_AT_LEAST_EVERY_SECONDS = 60.0
#: After this time a scan that was allowed has ended, or its worker has died.
RESERVED_SECONDS = 2.0
#: Reclaiming reads the entries of all jobs that ran. A dead host's jobs must be back within a minute in any case.
RECLAIM_AT_LEAST_EVERY_SECONDS = 10.0

#: The gateway whose jobs are claimed. There is one.
ROUTE = "default"
#: The turn of every job where owners do not take turns, and the last one where they do (0014_fair_share.sql).
TURN, LAST_TURN = 0, -2


class Position(NamedTuple):
    """A key of jobs_claimable after its route: the order of sql/claim_order.sql, created_at as PostgreSQL writes it."""

    priority: int  # negated
    turn: int
    created_at: str
    id: UUID

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a statement that reads the index from here on."""
        return {
            "route": ROUTE, "after_priority": self.priority, "after_turn": self.turn,
            "after_created_at": self.created_at, "after_id": str(self.id),
        }  # fmt: skip

    @property
    def has_turn(self) -> bool:
        """Whether owners took turns when a job of this key was queued."""
        return START.turn < self.turn <= LAST_TURN


START = Position(-(2**63), -(2**63), "-infinity", UUID(int=0))
#: After every job: a claim from here finds nothing and costs nothing.
END = Position(2**63 - 1, 2**63 - 1, "infinity", UUID(int=0))


class Scan(NamedTuple):
    """What a claim has read."""

    start: Position
    entries: int
    seconds: float
    ended: float  # by the monotonic clock

    @property
    def is_cheap(self) -> bool:
        """Whether the next claim may start at the beginning too, so that nothing has to be recorded."""
        return self.start is START and self.entries <= FEW_ENTRIES


#: The fields of _State, packed.
_STATE = struct.Struct("=ddqdqqqq48s16s48sqq")
_TIMES = struct.Struct("=ddq")  # its first three fields, which every claim reads
_CLAIMED = struct.Struct("=qqq48s16s")  # last_priority and the position, which every claim from a position writes
_CLAIMED_OFFSET = struct.calcsize("=ddqdq")


class _State(NamedTuple):
    next_at: float = 0.0
    next_when_known_at: float = 0.0
    is_known: int = 0
    next_reclaim_at: float = 0.0
    place: int = 1
    last_priority: int = 0
    priority: int = START.priority
    turn: int = START.turn
    created_at: bytes = START.created_at.encode()
    id: bytes = START.id.bytes
    due_after: bytes = b"-infinity"
    next_priority: int = 0  # where owners take turns: the next position
    next_turn: int = START.turn

    @property
    def position(self) -> Position:
        return Position(self.priority, self.turn, _text(self.created_at), UUID(bytes=self.id))

    @property
    def next_position(self) -> Position:
        return _at_turn(self.next_priority, self.next_turn)


class ScanBudget:
    """It is in memory that the processes of a host share, without a lock: a lost write, or a position mixed from two
    writes, costs one more scan or delays a job until the next scan from the start."""

    SIZE = _STATE.size

    def __init__(self, memory: mmap.mmap | bytearray | None = None, offset: int = 0) -> None:
        self._memory, self._offset = bytearray(self.SIZE) if memory is None else memory, offset
        self._write(_State())

    def _read(self) -> _State:
        return _State(*_STATE.unpack_from(self._memory, self._offset))

    def _write(self, state: _State) -> None:
        _STATE.pack_into(self._memory, self._offset, *state)

    def set_place(self, place: int) -> None:
        """Records the host's place among those that wait. A host in a later place scans less often, so that a hundred
        hosts cost little more than one."""
        self._write(self._read()._replace(place=place))

    def allows_scan(self, now: float, *, known: bool = False) -> bool:
        """If it does, and scans are expensive, it allows no other scan until this one has been recorded."""
        next_at, next_when_known_at, is_known = _TIMES.unpack_from(self._memory, self._offset)
        if now < (next_when_known_at if known or is_known else next_at):
            return False
        if next_at:
            end = now + RESERVED_SECONDS
            _TIMES.pack_into(self._memory, self._offset, max(next_at, end), max(next_when_known_at, end), is_known)
        return True

    @property
    def is_limited(self) -> bool:
        """Whether the last scan from the start was expensive."""
        return bool(_TIMES.unpack_from(self._memory, self._offset)[0])

    def record_cheap_scan(self) -> None:
        state = self._read()
        self._write(_State(next_reclaim_at=state.next_reclaim_at, place=state.place))

    @property
    def position(self) -> Position:
        _, priority, turn, created_at, job_id = _CLAIMED.unpack_from(self._memory, self._offset + _CLAIMED_OFFSET)
        return Position(priority, turn, _text(created_at), UUID(bytes=job_id))

    @property
    def due_after(self) -> str:
        """No retry that became due before this time is left."""
        return _text(self._read().due_after)

    @property
    def last_turn(self) -> Position | None:
        """A turn that was claimed not long ago, while claims start at a position and owners take turns."""
        last = self._read().next_position
        return last if self.is_limited and last.has_turn else None

    def record_known_job(self) -> None:
        """A job is there that was not found after the position, and a scan was not allowed yet."""
        self._write(self._read()._replace(is_known=1))

    def record_claim(self, scan: Scan, claimed: Position) -> None:
        """The next claim starts where this one ended, unless it may start at the beginning."""
        if claimed.has_turn:
            self._record_turn(scan, claimed)
            return
        if scan.entries <= FEW_ENTRIES and scan.start != START:
            values = (claimed.priority, claimed.priority, claimed.turn, claimed.created_at.encode(), claimed.id.bytes)
            _CLAIMED.pack_into(self._memory, self._offset + _CLAIMED_OFFSET, *values)
            return
        state = self._charged(scan)._replace(last_priority=claimed.priority)
        if scan.start == START:
            state = state._replace(is_known=0)
        self._write(_at(state, claimed))

    def _record_turn(self, scan: Scan, claimed: Position) -> None:
        """The position follows the claims at a distance."""
        if scan.start != START and scan.entries <= TRAIL_ENTRIES:
            return
        state = self._charged(scan)._replace(last_priority=claimed.priority)
        reached, last = _at_turn(claimed.priority, claimed.turn), state.next_position
        if scan.start == START:
            state = state._replace(is_known=0)
            follows = state.position.has_turn and state.priority == claimed.priority and state.turn <= claimed.turn
            position = state.position if follows else reached
        else:
            position = last if last.has_turn and scan.start < last <= claimed else reached
        state = _at(state, position)
        self._write(state._replace(next_priority=reached.priority, next_turn=reached.turn))

    def record_nothing_found(self, scan: Scan, recent: str) -> None:
        """After a scan from the start only new jobs are still to be found, which have a recent created_at. After a scan
        from a position that dead entries follow, another position is tried until the next scan from the start."""
        state = self._charged(scan)
        if state.position.has_turn:
            last = state.next_position
            is_behind = scan.start != START and scan.entries > MANY_ENTRIES and scan.start < last
            state = _at(state, last) if is_behind else state
            self._write(state._replace(is_known=0) if scan.start == START else state)
        elif scan.start == START:
            turn = state.turn if START.turn < state.turn < TURN else TURN
            self._write(_at(state._replace(is_known=0), Position(state.last_priority, turn, recent, UUID(int=0))))
        elif scan.entries > MANY_ENTRIES:
            self._write(_at(state, Position(0, TURN, recent, UUID(int=0)) if scan.start.priority < 0 else END))

    def record_job_seen(self, scan: Scan) -> None:
        """It was found and not claimed: the next claim will find it from the same position."""
        if scan.entries > FEW_ENTRIES:
            self._write(self._charged(scan))

    def record_no_retry_due(self, recent: str) -> None:
        self._write(self._read()._replace(due_after=recent.encode()))

    def _charged(self, scan: Scan) -> _State:
        state = self._read()
        if scan.entries > FEW_ENTRIES:
            pause = min(SHARE * scan.seconds, SCAN_AT_LEAST_EVERY_SECONDS) * state.place
            state = state._replace(next_at=scan.ended + pause)
        if scan.entries > MANY_ENTRIES:
            pause = min(SHARE_WHEN_KNOWN * scan.seconds, SCAN_AT_LEAST_EVERY_SECONDS)
            state = state._replace(next_when_known_at=scan.ended + pause)
        return state

    def allows_reclaim(self, now: float) -> bool:
        """If it does, it allows no other reclaim until this one has been recorded."""
        state = self._read()
        if now < state.next_reclaim_at:
            return False
        self._write(state._replace(next_reclaim_at=now + RESERVED_SECONDS))
        return True

    def record_reclaim(self, began: float, now: float) -> None:
        pause = min(SHARE * (now - began), RECLAIM_AT_LEAST_EVERY_SECONDS)
        self._write(self._read()._replace(next_reclaim_at=now + pause))


def _at(state: _State, position: Position) -> _State:
    return state._replace(
        priority=position.priority, turn=position.turn, created_at=position.created_at.encode(), id=position.id.bytes
    )  # fmt: skip


def _at_turn(priority: int, turn: int) -> Position:
    return Position(priority, turn, START.created_at, START.id)


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode()
