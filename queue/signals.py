"""Signals as data: handlers only record them on a pipe, and a loop that waits on the pipe acts."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable, Iterator


class Signals:
    """One per process: a forked child makes its own, or its SIGTERM would reach the parent's pipe."""

    def __init__(self, handled: Iterable[signal.Signals]) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll: select.epoll | None = None
        self._poll = _poll_for(self._reader)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in handled:
            signal.signal(number, _record)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)

    def wait(self, timeout: float | None, *others: int) -> tuple[list[signal.Signals], set[int]]:
        """The signals that came and the descriptors among `others` that are ready, at the latest after `timeout`."""
        poll = _poll_for(self._reader, *others) if others else self._poll
        milliseconds = None if timeout is None else max(0, int(timeout * 1000 + 0.999))
        ready = {descriptor for descriptor, _ in poll.poll(milliseconds)}
        return self.take() if self._reader in ready else [], ready - {self._reader}

    def wait_with_others(self, timeout: float, shared: int) -> list[signal.Signals]:
        """For signals, or for a descriptor that other processes wait for too: when that becomes ready, the kernel wakes
        one of the waiting processes, instead of all of them."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._epoll.register(self._reader, select.EPOLLIN)
            self._epoll.register(shared, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        ready = {descriptor for descriptor, _ in self._epoll.poll(max(0.0, timeout))}
        return self.take() if self._reader in ready else []

    def wait_for_one(self, timeout: float) -> None:
        """Waits for a signal and leaves it on the pipe. May be called on another thread than `wait`."""
        _poll_for(self._reader).poll(timeout * 1000)

    def take(self) -> list[signal.Signals]:
        with contextlib.suppress(BlockingIOError):
            return [signal.Signals(number) for number in os.read(self._reader, 4096)]
        return []

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        if self._epoll is not None:
            self._epoll.close()
        os.close(self._reader)
        os.close(self._writer)


def _poll_for(*descriptors: int) -> select.poll:
    """select.select would end at descriptor 1023."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll


@contextlib.contextmanager
def blocked(numbers: Iterable[signal.Signals]) -> Iterator[set[signal.Signals | int]]:
    """Around a fork: until the child has its own pipe, no signal may be recorded on the parent's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _record(number: int, frame: object) -> None:
    """Replaces Python's default action. `set_wakeup_fd` has written the number to the pipe already."""


def has_terminal() -> bool:
    """Whether this process's session has a controlling terminal: after a SIGHUP, whether it still has it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
