"""The process that answers scrapes, as its supervisor sees it: started with METRICS_PORT, replaced, ended last."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from convertq.worker.board import Board
from convertq.worker.config import Config

BACKOFF_MAX = 30.0  # s
END_WITHIN = 2.0  # s

Fork = Callable[[Callable[[], None]], int]


class MetricsProcess:
    def __init__(self, config: Config, board: Board, fork: Fork) -> None:
        self._config, self._board, self._fork = config, board, fork
        self._pid, self._start_at, self._pause = 0, 0.0, 0.5

    def keep_up(self) -> None:
        if self._config.metrics_port is None:
            return
        if self._pid and self._has_ended():
            self._start_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, BACKOFF_MAX)
        if not self._pid and time.monotonic() >= self._start_at:
            self._pid = self._fork(self._serve)

    def _has_ended(self) -> bool:
        if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            return False
        self._pid = 0
        return True

    def _serve(self) -> None:
        """In the child alone: without METRICS_PORT no process has an HTTP server in its memory."""
        from convertq.worker.metrics_server import serve_metrics

        serve_metrics(self._config, self._board.server_id)

    def end(self) -> None:
        """It holds nothing that would need an orderly end; the kill is for one that does not hear."""
        deadline = time.monotonic() + END_WITHIN
        number = signal.SIGTERM
        while self._pid and not self._has_ended():
            if time.monotonic() > deadline:
                number = signal.SIGKILL
            os.kill(self._pid, number)
            time.sleep(0.01)
