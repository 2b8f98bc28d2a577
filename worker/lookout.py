"""A worker's second thread: while the first one is in a blocking attempt, it looks after that attempt now and then.

An attempt that is over before the first look costs nothing: no thread is woken for it, and none is waited for.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from convertq.worker.attempt import Step
from convertq.worker.child import end_with_last_words
from convertq.worker.errors import Code, Failure
from convertq.worker.outcome import Completed
from convertq.worker.stopping import Stopping
from convertq.worker.watcher import Ending, Watcher

LOOK_EVERY = 0.1  # s; a signal is heard at once
LETS_GO = 2.0  # s that an aborted attempt has to return


class Lookout:
    """`abandon` ends the process for a first thread that does not come back: of a hung disk, or name server."""

    def __init__(self, stopping: Stopping, abandon: Callable[[Watcher, Ending], NoReturn]) -> None:
        self._stopping, self._abandon = stopping, abandon
        self._watcher: Watcher | None = None
        self._lock = threading.Lock()  # whoever has it may use the connection, while an attempt is under way
        self._sleeps, self._alarm = False, threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True, name="lookout").start()

    def watch(self, watcher: Watcher, step: Step) -> Completed | Ending | None:
        """Takes the step, here and now; returns what came of it, or why it was ended before that."""
        self._watcher = watcher
        if self._sleeps:
            self._alarm.release()
        result = _result_of(step)
        with self._lock:
            self._watcher = None
        return watcher.ending or result

    # -- on the second thread --

    def _run(self) -> None:
        with end_with_last_words():
            while True:
                watcher = self._next()
                self._stopping.wait(LOOK_EVERY)
                with self._lock:
                    if self._watcher is watcher:
                        self._look(watcher)

    def _next(self) -> Watcher:
        while (watcher := self._watcher) is None:
            self._sleeps = True
            if self._watcher is None:  # asked again: whoever came before it was said has not rung
                self._alarm.acquire()
            self._sleeps = False
        return watcher

    def _look(self, watcher: Watcher) -> None:
        self._stopping.hear()
        if watcher.ending is None:
            watcher.look()
        elif time.monotonic() >= watcher.ended_at + LETS_GO:
            self._abandon(watcher, watcher.ending)


def _result_of(step: Step) -> Completed | Failure | None:
    try:
        return step()
    except Failure as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends here as a value
        message = f"an unexpected error: {type(error).__name__}"
        return Failure(Code.UNKNOWN, message, detail=traceback.format_exc(limit=-6))
