"""A command of convertq as a process of its own: started, asked for its address, stopped, and never left behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from convertq.embedded.binaries import EmbeddedError
from convertq.embedded.parent_death import ends_with_parent

LISTENING = "listening on "
STEP_TIMEOUT_SECONDS = 2.0  # for a stop, and for a stop at once; then it is killed


class Service:
    """Start it from the main thread: the kernel ends it when the *thread* that started it ends."""

    def __init__(
        self,
        name: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        stop: signal.Signals = signal.SIGTERM,
        stop_at_once: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Without a log file it writes to this process's stderr."""
        self.name, self._log = name, log
        self._stop, self._stop_at_once = stop, stop_at_once
        with contextlib.ExitStack() as opened:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "convertq.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=opened.enter_context(open(log, "wb")) if log else None,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the parent; it stops them in order
                preexec_fn=ends_with_parent(signal.SIGTERM),
            )

    def address(self) -> str:
        """Of the line that a server prints once it listens; waits for it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        if not line.startswith(LISTENING):
            where = f": see {self._log}" if self._log else ""
            raise EmbeddedError(f"{self.name} did not start{where}")
        return line.removeprefix(LISTENING)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def begin_stop(self) -> None:
        self.process.send_signal(self._stop)

    def stop_at_once(self) -> None:
        """After begin_stop: without its grace. A worker requeues its jobs."""
        self.process.send_signal(self._stop_at_once)

    def close(self) -> None:
        """Ends it, whatever it takes."""
        for step in (self.begin_stop, self.stop_at_once):
            if not self.has_ended:
                step()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(STEP_TIMEOUT_SECONDS)
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
