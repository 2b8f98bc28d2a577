"""Owns an embedded PostgreSQL server, throw-away or with kept data; `worker run` never starts one."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from convertq.embedded.binaries import Binaries, EmbeddedError, unprivileged_account
from convertq.embedded.kept_folder import KeptFolder
from convertq.embedded.parent_death import ends_with_parent
from convertq.embedded.scratch import Scratch, executable_base, fast_base
from convertq.queue.store.regular_file import rename_into_place

#: For data nobody keeps. A crash of the server loses nothing; a crash of the machine may.
FAST = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "4GB", "autovacuum": "off"}

#: For data that is kept: PostgreSQL's durable defaults, and a log that does not grow with every checkpoint.
DURABLE = {"log_checkpoints": "off"}

PORTS = range(15000, 32000)
_port_numbers = itertools.count(random.randrange(len(PORTS)))

StopMode = Literal["fast", "immediate"]
SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class EmbeddedPostgres:
    """A server of its own: `start`, `stop` and `restart` keep the data, `close` throws it away unless it is `kept`.

    Start it from the main thread: the kernel ends it when the *thread* that started it ends.
    """

    user = "postgres"

    def __init__(
        self,
        *,
        settings: Mapping[str, str] = FAST,
        port: int | None = None,
        on_disk: bool = False,
        kept: Path | None = None,
    ) -> None:
        """Without a port it listens on a socket only; port 0 is any free TCP port on 127.0.0.1.

        `on_disk` is for measurements: in memory, where the data is otherwise, an fsync costs nothing. `kept` is the
        folder of a server whose data stays.
        """
        self.tcp = port is not None
        self.port = free_port() if port == 0 else port or 5432
        self.settings = dict(settings)
        base = executable_base() if on_disk else fast_base()
        self._folder = KeptFolder(kept) if kept else Scratch(base, unprivileged_account())
        self._binaries = Binaries(self._folder.account)
        self._data = self._folder.path / "data"
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return "127.0.0.1" if self.tcp else str(self._folder.path)

    @property
    def pid(self) -> int | None:
        return self._server.pid if self._server else None

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._server is not None and self._server.poll() is not None

    @property
    def log(self) -> Path:
        return self._folder.path / "log"

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
        self._folder.close()
        self._binaries.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _initialise(self) -> None:
        """The folder gets its name when it is whole: a start that was interrupted is begun again."""
        if self._data.exists():
            return self._refuse_another_version()
        new = self._folder.path / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        choices = ["-A", "trust", "-E", "UTF8", "--no-locale", "--no-instructions"]
        if self.settings.get("fsync") == "off":
            choices.append("--no-sync")
        target = str(self._folder.inside / new.name)
        self._binaries.run(
            self._folder.path, "initdb", "-D", target, "-U", self.user, *choices, inherited=self._folder.inherited
        )
        rename_into_place(new, self._data)

    def _refuse_another_version(self) -> None:
        data, programs = (self._data / "PG_VERSION").read_text().strip(), self._binaries.major_version()
        if data != programs:
            raise EmbeddedError(
                f"the database in {self._data} is of PostgreSQL {data}, and the programs in {self._binaries.prefix} "
                f"are of PostgreSQL {programs}: set CONVERTQ_PG_PREFIX to an installation of PostgreSQL {data}, such "
                f"as /usr/lib/postgresql/{data}, or choose another --data"
            )

    def _launch(self) -> subprocess.Popen[bytes]:
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [self._binaries.program("postgres"), "-D", str(self._folder.inside / "data"), *self._arguments()],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
                preexec_fn=ends_with_parent(signal.SIGINT),
                pass_fds=self._folder.inherited,
                **self._binaries.launch_options(self._folder.path),
            )

    def _arguments(self) -> list[str]:
        listening = {
            "listen_addresses": "127.0.0.1" if self.tcp else "",
            "port": str(self.port),
            "unix_socket_directories": str(self._folder.inside),
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
    """Below the ephemeral range: there, a client that retries a closed port can connect to itself.

    The caller binds the port later. Each process takes one after another from a random start: two processes that
    drew every port at random would now and then be given the same one before either had bound it.
    """
    while True:
        port = PORTS[next(_port_numbers) % len(PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
