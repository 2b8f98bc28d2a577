"""Whether a worker has to stop, and how soon: what the signals of its supervisor mean to it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from convertq.queue.signals import Signals

#: Finish the current job, however long it takes, and exit: a successor is waiting.
RETIRE = signal.SIGUSR1
#: SIGTERM: finish the current job within the grace. SIGQUIT: requeue it now. A terminal sends SIGINT and SIGHUP to the
#: whole process group; only the supervisor acts on them.
HANDLED = (signal.SIGTERM, signal.SIGQUIT, RETIRE)


class Stopping:
    def __init__(self, signals: Signals, grace_seconds: float) -> None:
        self._signals, self._grace_seconds = signals, grace_seconds
        self._deadline: float | None = None
        self._is_retired = False

    def __bool__(self) -> bool:
        """Whether to stop. It reads the pipe too: a signal may have come while a statement ran."""
        self.pause(0)
        return self._is_retired or self._deadline is not None

    @property
    def has_deadline(self) -> bool:
        """Whether the grace runs. A worker that only retires finishes what it has claimed."""
        return self._deadline is not None

    @property
    def is_grace_over(self) -> bool:
        """Whether the current job has to be requeued."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def pause(self, seconds: float) -> None:
        """Sleeps until the time has passed or a signal has come."""
        self._record(self._signals.wait(seconds)[0])

    def pause_with_others(self, seconds: float, shared: int) -> None:
        """Like `pause`, but a descriptor that many processes wait for ends it too: one of them is woken."""
        self._record(self._signals.wait_with_others(seconds, shared))

    def wait_for_signal(self, seconds: float) -> None:
        """Like `pause`, but the signal stays on the pipe: `take_signals` reads it."""
        self._signals.wait_for_one(seconds)

    def take_signals(self) -> None:
        self._record(self._signals.take())

    def _record(self, arrived: Iterable[signal.Signals]) -> None:
        for number in arrived:
            if number is signal.SIGQUIT:
                self._deadline = time.monotonic()
            elif number is RETIRE:
                self._is_retired = True
            elif number is signal.SIGTERM and self._deadline is None:
                self._deadline = time.monotonic() + self._grace_seconds
