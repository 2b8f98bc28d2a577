"""Owns a throw-away PostgreSQL server for the demo and the tests; `worker run` never starts one."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from convertq.embedded.binaries import Binaries, EmbeddedError, unprivileged_account
from convertq.embedded.scratch import Scratch, executable_base, fast_base

#: For data nobody keeps. A crash of the server loses nothing; a crash of the machine may.
FAST = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "4GB", "autovacuum": "off"}

StopMode = Literal["fast", "immediate"]
SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
PR_SET_PDEATHSIG = 1


class EmbeddedPostgres:
    """A server of its own: `start`, `stop` and `restart` keep the data, `close` throws it away.

    Start it from the main thread: the kernel ends it when the *thread* that started it ends.
    """

    user = "postgres"

    def __init__(self, *, settings: Mapping[str, str] = FAST, port: int | None = None, on_disk: bool = False) -> None:
        """Without a port it listens on a socket only; port 0 is any free TCP port on 127.0.0.1.

        `on_disk` is for measurements: in memory, where the data is otherwise, an fsync costs nothing.
        """
        self.tcp = port is not None
        self.port = free_port() if port == 0 else port or 5432
        self.settings = dict(settings)
        account = unprivileged_account()
        self._binaries = Binaries(account)
        self._scratch = Scratch(executable_base() if on_disk else fast_base(), account)
        self._data = self._scratch.path / "data"
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return "127.0.0.1" if self.tcp else str(self._scratch.path)

    @property
    def pid(self) -> int | None:
        return self._server.pid if self._server else None

    @property
    def log(self) -> Path:
        return self._scratch.path / "log"

    def url(self, database: str = "postgres") -> str:
        if self.tcp:
            return f"postgresql://{self.user}@{self.host}:{self.port}/{database}"
        return f"postgresql://{self.user}@/{database}?host={quote(self.host, safe='')}&port={self.port}"

    def start(self, timeout: float = 30) -> Self:
        atexit.register(self.close)
        try:
            self._initialise()
            self._server = self._launch()
            self._await_ready(self._server, timeout)
        except BaseException:
            self.close()
            raise
        return self

    def stop(self, mode: StopMode = "fast") -> None:
        if self._server is None or os.getpid() != self._owner:  # a forked child's exit must not stop it
            return
        for attempt in (SIGNALS[mode], signal.SIGQUIT, signal.SIGKILL):
            self._server.send_signal(attempt)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(10)
                break
        self._server = None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.close)
        self.stop()
        self._scratch.remove()
        self._binaries.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _initialise(self) -> None:
        if (self._data / "PG_VERSION").exists():
            return
        choices = ["-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        self._binaries.run(self._scratch.path, "initdb", "-D", str(self._data), "-U", self.user, *choices)

    def _launch(self) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [self._binaries.program("postgres"), "-D", str(self._data), *self._arguments()],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
                preexec_fn=_dies_with_parent(),
                **self._binaries.launch_options(self._scratch.path),
            )

    def _arguments(self) -> list[str]:
        listening = {
            "listen_addresses": "127.0.0.1" if self.tcp else "",
            "port": str(self.port),
            "unix_socket_directories": str(self._scratch.path),
            "unix_socket_permissions": "0700",
        }
        settings = {**listening, **self.settings}
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _await_ready(self, server: subprocess.Popen[bytes], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while server.poll() is None and time.monotonic() < deadline:
            if self._says_ready(server.pid):
                return
            time.sleep(0.005)
        raise EmbeddedError(f"PostgreSQL did not start:\n{self.log.read_text(errors='replace')[-2000:]}")

    def _says_ready(self, pid: int) -> bool:
        """Line 8 of postmaster.pid is the state; a file that a crash left has another pid in line 1."""
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def free_port() -> int:
    """Below the ephemeral range: there, a client that retries a closed port can connect to itself."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _dies_with_parent() -> Callable[[], None]:
    """Runs in the child between fork and exec: the kernel then shuts the server down when its parent has died."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)  # loaded before the fork: the child must not take the loader's locks

    def arrange() -> None:
        if sys.platform == "linux":
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl took effect
            os._exit(1)

    return arrange
