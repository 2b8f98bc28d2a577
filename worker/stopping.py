"""Whether a worker is to stop, and how soon: what its supervisor's signals mean to it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from convertq.worker.signals import Signals

#: Finish the job in hand, however long it takes, and go: a successor is waiting.
RETIRE = signal.SIGUSR1
#: SIGTERM: finish the job in hand within the grace. SIGQUIT: give it back now. SIGINT and SIGHUP come from a terminal
#: to the whole group, and are the supervisor's to act on.
HANDLED = (signal.SIGTERM, signal.SIGQUIT, RETIRE)


class Stopping:
    def __init__(self, signals: Signals, grace: float) -> None:
        self._signals, self._grace = signals, grace
        self._deadline: float | None = None
        self._retired = False

    def __bool__(self) -> bool:
        """Asks the pipe too: a signal may have come while a statement ran."""
        self.pause(0)
        return self._retired or self._deadline is not None

    @property
    def is_over(self) -> bool:
        """The grace has passed: whatever is in hand goes back to the queue."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def pause(self, timeout: float) -> None:
        """Sleeps until the time has passed or a signal has come."""
        self._note(self._signals.wait(timeout)[0])

    def pause_with_others(self, timeout: float, shared: int) -> None:
        """Like `pause`, for a descriptor that many processes wait for: one of them is woken."""
        self._note(self._signals.wait_with_others(timeout, shared))

    def wait(self, timeout: float) -> None:
        """Like `pause`, but the signal stays for whoever hears it."""
        self._signals.wait_for_one(timeout)

    def hear(self) -> None:
        self._note(self._signals.take())

    def _note(self, arrived: Iterable[signal.Signals]) -> None:
        for number in arrived:
            if number is signal.SIGQUIT:
                self._deadline = time.monotonic()
            elif number is RETIRE:
                self._retired = True
            elif number is signal.SIGTERM and self._deadline is None:
                self._deadline = time.monotonic() + self._grace
