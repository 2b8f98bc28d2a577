"""A worker's second thread: while the first one is in a blocking attempt, it runs the monitor of that attempt.

An attempt that ends before the first check costs nothing: no thread is woken for it, and none is waited for.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from convertq.queue.errors import Code, Failure
from convertq.queue.outcome import Completed
from convertq.worker.loop.attempt import Step
from convertq.worker.loop.attempt_monitor import AttemptMonitor, Ending
from convertq.worker.loop.batch import Batch
from convertq.worker.loop.stopping import Stopping
from convertq.worker.supervisor.child import exit_on_any_error

CHECK_EVERY_SECONDS = 0.1  # a signal cuts the wait short
ABORT_TIMEOUT_SECONDS = 2.0  # in which an aborted attempt has to return


class MonitorThread:
    """`exit_hung` ends the process when the first thread does not return from an aborted attempt. `settle_late_batch`
    is called when other jobs of the batch have waited too long for this one."""

    def __init__(
        self,
        stopping: Stopping,
        batch: Batch,
        settle_late_batch: Callable[[], None],
        exit_hung: Callable[[AttemptMonitor, Ending], NoReturn],
    ) -> None:
        self._stopping, self._exit_hung = stopping, exit_hung
        self._batch, self._settle_late_batch = batch, settle_late_batch
        self._monitor: AttemptMonitor | None = None
        self._lock = threading.Lock()  # while an attempt runs, the thread that holds it may use the connection
        self._sleeps, self._wake_up = False, threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True, name="attempt-monitor").start()

    def run(self, monitor: AttemptMonitor, step: Step) -> Completed | Ending | None:
        """Runs the step on the calling thread. Returns its result, or why the monitor ended it."""
        self._monitor = monitor
        if self._sleeps:
            self._wake_up.release()
        result = _result_of(step)
        with self._lock:
            self._monitor = None
        return monitor.ending or result

    # -- on the second thread --

    def _run(self) -> None:
        with exit_on_any_error():
            while True:
                monitor = self._wait_for_monitor()
                until_late = self._batch.is_late_at - time.monotonic()
                self._stopping.wait_for_signal(max(0.001, min(CHECK_EVERY_SECONDS, until_late)))
                with self._lock:
                    if self._monitor is monitor:
                        self._check(monitor)
                    if self._monitor is not None and time.monotonic() >= self._batch.is_late_at:
                        self._settle_late_batch()

    def _wait_for_monitor(self) -> AttemptMonitor:
        while (monitor := self._monitor) is None:
            self._sleeps = True
            if self._monitor is None:  # Re-check: a monitor set before `_sleeps = True` has not released the semaphore.
                self._wake_up.acquire()
            self._sleeps = False
        return monitor

    def _check(self, monitor: AttemptMonitor) -> None:
        self._stopping.take_signals()
        if monitor.ending is None:
            monitor.check()
        elif time.monotonic() >= monitor.ended_at + ABORT_TIMEOUT_SECONDS:
            self._exit_hung(monitor, monitor.ending)


def _result_of(step: Step) -> Completed | Ending | None:
    try:
        return step()
    except Failure as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - every error becomes the failure of this attempt
        message = f"an unexpected error: {type(error).__name__}"
        return Failure(Code.UNKNOWN, message, detail=traceback.format_exc(limit=-6))
