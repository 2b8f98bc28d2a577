"""A reload: every worker that is there is replaced, one at a time, each after the job in its hands."""

from __future__ import annotations

from collections.abc import Sequence

from convertq.worker.board import Board
from convertq.worker.slot import Slot


class Reload:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._old: set[int] = set()  # pids
        self._leaving = 0  # the pid of the one that was told to go

    @property
    def left(self) -> int:
        """How many are still to be replaced; 0: no reload is under way."""
        return len(self._old)

    @property
    def waits_for_an_end(self) -> bool:
        """Its signal will tell, so nobody needs to look."""
        return self._leaving in self._old

    def begin(self, slots: Sequence[Slot]) -> None:
        self._old = {slot.pid for slot in slots if slot.pid}

    def give_up(self) -> None:
        self._old.clear()

    def choose(self, slots: Sequence[Slot]) -> Slot | None:
        """Who is to go next. Nobody, while one is on its way out or its successor on its way in.

        Called between reaping and starting: a pid that is gone must be forgotten before it can be given anew.
        """
        self._old &= {slot.pid for slot in slots}
        if self.waits_for_an_end or not all(self._board.read(slot.number).connected for slot in slots):
            return None
        waiting = [slot for slot in slots if slot.pid in self._old]
        chosen = min(waiting, key=lambda slot: self._board.read(slot.number).busy, default=None)  # idle ones first
        self._leaving = chosen.pid if chosen else 0
        return chosen
