"""Positions in the write-ahead log (LSNs): how far the primary has written, and whether a replica has followed."""

from __future__ import annotations

import re
from collections import deque

from convertq.queue.database.database import Database

MAX_BEHIND_SECONDS = 5.0
#: Beyond every position: no replica ever has it.
NEVER = 2**64 - 1


def parse_position(text: str | None) -> int | None:
    """None unless the text is an LSN as PostgreSQL writes it, such as 16/B374D848."""
    parts = re.fullmatch(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", text or "")
    return (int(parts[1], 16) << 32) + int(parts[2], 16) if parts else None


def format_position(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def read_position(database: Database) -> tuple[int | None, bool]:
    """The server's position, and whether it is a standby."""
    row = database.run("get_wal_position")[0]
    return parse_position(row["position"]), bool(row["is_standby"])


class ReplicaLag:
    """How far a replica is behind its primary: the age of the oldest position of the primary that it has not replayed.

    No clock of a server and no timestamp in the log is compared: those are old on a primary that writes nothing. While
    the primary cannot be read no position is added, and a replica that has replayed all of them is not behind.
    """

    def __init__(self) -> None:
        self.replayed = 0
        self._missing: deque[tuple[float, int]] = deque()  # when the primary was there, and where: the oldest first
        self._has_caught_up = False  # A replica whose lag was never measured may be hours behind.

    def add_primary_position(self, now: float, position: int) -> None:
        while self._missing and self._missing[-1][1] > position:  # of another primary, which is lost
            self._missing.pop()
        if self._missing and self._missing[-1][1] == position:
            return
        self._missing.append((now, position))
        if len(self._missing) > 100:  # The first one says for how long; of the others, every second one is enough.
            self._missing = deque([self._missing[0], *list(self._missing)[1::2]])

    def set_replayed(self, position: int) -> None:
        self.replayed = position
        while self._missing and self._missing[0][1] <= position:
            self._missing.popleft()
            self._has_caught_up = True

    def is_late(self, now: float) -> bool:
        return bool(self._missing) and now - self._missing[0][0] > MAX_BEHIND_SECONDS

    def is_close(self, now: float) -> bool:
        return self._has_caught_up and not self.is_late(now)
