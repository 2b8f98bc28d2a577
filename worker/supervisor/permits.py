"""Permits: how many workers of a large pool may be in a transaction that completes and claims at the same time.

The claims of all others read past the rows that such a transaction has locked. With 200 of them on two cores, most wait
for a core with their rows locked, and a job takes PostgreSQL three times the CPU that it takes with 16.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import time

#: Four times the cores of a small database server. Fewer would leave cores idle between two statements.
PERMITS = 8
#: The workers of a pool that is not larger need no permit.
LARGE_POOL = 16
#: Then a worker goes on without one: a permit saves CPU, and nothing depends on it.
WAIT_SECONDS = 1.0


class Permits:
    """Made before the fork: an eventfd that counts the free permits, and a byte for each slot that holds one.

    A killed worker does not return its permit: its supervisor does, when it reaps the worker. A worker that is killed
    between its two steps of taking or returning one may add a permit, but never removes one.
    """

    def __init__(self, slots: int) -> None:
        self.are_needed = slots > LARGE_POOL
        self._holders = mmap.mmap(-1, 1 + slots)
        if self.are_needed:
            self._free = os.eventfd(PERMITS, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll: select.epoll | None = None  # made by each process for itself

    def take(self, slot: int, wait_seconds: float = WAIT_SECONDS) -> bool:
        """Waits for a permit, and returns whether the worker of this slot has one now."""
        give_up_at = time.monotonic() + wait_seconds
        while not self._try(slot):
            seconds_left = give_up_at - time.monotonic()
            if seconds_left <= 0:
                return False
            self._wait(seconds_left)
        return True

    def _try(self, slot: int) -> bool:
        self._holders[slot] = 1
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._free)
            return True
        self._holders[slot] = 0
        return False

    def _wait(self, seconds: float) -> None:
        """The kernel wakes one of the waiting processes for each permit, in the order in which they registered: so each
        registers for one wait only, or the first workers of the pool would always get the permits."""
        if self._epoll is None:
            self._epoll = select.epoll()
        self._epoll.register(self._free, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        try:
            self._epoll.poll(seconds)
        finally:
            self._epoll.unregister(self._free)

    def give_back(self, slot: int) -> None:
        """Does nothing if this slot holds none."""
        if self._holders[slot]:
            os.eventfd_write(self._free, 1)
            self._holders[slot] = 0
