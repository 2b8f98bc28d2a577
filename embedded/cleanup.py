"""Retention for `convertq up`: no timer of the machine runs `convertq cleanup` for it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from signal import SIGTERM

from convertq.embedded.parent_death import ends_with_parent

FIRST_AFTER_SECONDS = 300.0  # After a start there is other work, and a machine may never run for a whole day.
EVERY_SECONDS = 24 * 3600.0
STOP_TIMEOUT_SECONDS = 2.0


class RepeatedCleanup:
    """Runs `convertq cleanup` as a child process, never two at once. A failure is reported, and the next one is due as
    after a success."""

    def __init__(self, environment: Mapping[str, str], report: Callable[[str], None]) -> None:
        self._environment, self._report = environment, report
        self._due = time.monotonic() + FIRST_AFTER_SECONDS
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe that nobody reads would block the process

    def check(self) -> None:
        """Called every few seconds, from the main thread (see Service)."""
        if self._process is None:
            if time.monotonic() >= self._due:
                self._start()
        elif self._process.poll() is not None:
            if self._process.returncode:
                self._report(f"cleanup failed: {self._last_line() or f'exit code {self._process.returncode}'}")
            self._process = None

    def close(self) -> None:
        """What was removed is committed; the next cleanup removes the rest."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()

    def _start(self) -> None:
        self._due = time.monotonic() + EVERY_SECONDS
        self._output.seek(0)
        self._output.truncate()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "convertq.cli.main", "cleanup"],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the parent
                preexec_fn=ends_with_parent(SIGTERM),
            )
        except OSError as error:  # no process or memory is left
            self._report(f"cleanup failed: {error.strerror}")

    def _last_line(self) -> str:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").splitlines()
        return lines[-1].removeprefix("convertq: ") if lines else ""
