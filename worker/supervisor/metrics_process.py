"""The process that serves metrics, as its supervisor sees it: started with METRICS_PORT, replaced, ended last."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from convertq.queue.backoff import Backoff
from convertq.queue.config import Config
from convertq.worker.supervisor.status_table import WorkerStatusTable
from tenacity import wait_exponential

TERMINATION_TIMEOUT_SECONDS = 2.0

Fork = Callable[[Callable[[], None]], int]


class MetricsProcess:
    def __init__(self, config: Config, status_table: WorkerStatusTable, fork: Fork) -> None:
        self._config, self._status_table, self._fork = config, status_table, fork
        self._pid, self._start_at = 0, 0.0
        self._backoff = Backoff(wait_exponential(multiplier=0.5, max=30))

    def keep_up(self) -> None:
        if self._config.metrics_port is None:
            return
        if self._pid and self._has_ended():
            self._start_at = time.monotonic() + self._backoff.next_pause_seconds()
        if not self._pid and time.monotonic() >= self._start_at:
            self._pid = self._fork(self._serve)

    def _has_ended(self) -> bool:
        if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            return False
        self._pid = 0
        return True

    def _serve(self) -> None:
        """Imports the HTTP server in the child alone: without METRICS_PORT no process has it in its memory."""
        from convertq.worker.supervisor.metrics_server import serve_metrics

        serve_metrics(self._config, self._status_table)

    def end(self) -> None:
        """Ends it with SIGTERM, and with SIGKILL when it does not end in time. It has nothing to clean up."""
        deadline = time.monotonic() + TERMINATION_TIMEOUT_SECONDS
        number = signal.SIGTERM
        while self._pid and not self._has_ended():
            if time.monotonic() > deadline:
                number = signal.SIGKILL
            os.kill(self._pid, number)
            time.sleep(0.01)
