"""Real convertq processes in tests: start, read their log, stop, and prove that nothing is left."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.preloaded import Preloaded, can_run
from tests.waiting import WAIT_SECONDS, eventually

Event = dict[str, Any]
MARK = "CONVERTQ_TEST_MARK"
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
CONSOLE_SCRIPT = str(Path(sys.executable).with_name("convertq"))


class Process:
    """One `convertq …` in the background; its log is read line by line as it is written."""

    def __init__(self, *arguments: str, environment: Mapping[str, str], program: Sequence[str] | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.lines: list[str] = []
        self._events: list[Event] = []
        self._changed = threading.Condition()  # its lock is reentrant
        self._silent = False
        self.popen = subprocess.Popen(
            [*(program or [CONSOLE_SCRIPT]), *arguments],
            env={**environment, MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at pytest's terminal is for pytest
            preexec_fn=lambda: _libc.prctl(
                PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0
            ),  # it does not outlive a killed pytest
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.popen.pid

    def children(self) -> list[int]:
        """Its direct children: for a supervisor, the workers.

        The kernel lists them in one read. A scan of all processes takes so long on a loaded machine that one which is
        replaced meanwhile is missed, and so is its successor. For the same reason the list must be the same after each
        of them was looked at.
        """
        while True:
            listed = self._listed_children()
            living = [pid for pid in listed if parent_of(pid) == self.pid]
            if listed == self._listed_children():
                return living

    def _listed_children(self) -> list[int]:
        """With those that have ended and are not reaped yet."""
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except OSError:  # a kernel without this list, or the process has ended
            return [pid for pid in pids() if parent_of(pid) == self.pid]

    def family(self) -> list[int]:
        """Every live process that it started, orphans included: they inherited the mark."""
        return [pid for pid in pids() if self.mark in environment_of(pid)]

    def events(self, name: str, **fields: object) -> list[Event]:
        """The log lines of this event so far, whose fields have these values."""
        with self._changed:
            return [event for event in self._events if matches(event, {"event": name, **fields})]

    def wait_for_event(self, name: str, timeout: float = WAIT_SECONDS, count: int = 1, **fields: object) -> Event:
        """The `count`th such log line; an AssertionError with the log when it does not come."""
        with self._changed:
            self._changed.wait_for(lambda: self._silent or len(self.events(name, **fields)) >= count, timeout)
            found = self.events(name, **fields)
        if len(found) < count:
            came = f"{len(found)} of {count} events {name} {fields} within {timeout:g} s"
            raise AssertionError(f"{came}; the log ends:\n{self.tail()}")
        return found[count - 1]

    def tail(self, lines: int = 30) -> str:
        with self._changed:
            return "\n".join(self.lines[-lines:])

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        """Its exit code, once it has ended and its log is read to the end."""
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"pid {self.pid} still runs; its log ends:\n{self.tail()}") from None
        self._reader.join(10)
        return code

    def stop(self, timeout: float = WAIT_SECONDS) -> int:
        """SIGTERM, and its exit code."""
        self.send(signal.SIGTERM)
        return self.wait(timeout)

    def end(self) -> list[str]:
        """Whatever it takes; returns the names of those that had to be killed."""
        for pid in self.family():
            _signal(pid, signal.SIGCONT)
        if self.popen.poll() is None:
            self._request_twice()
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self.family())
        leftovers = self.family()
        names = [f"{pid} {command_of(pid)}" for pid in leftovers]
        for pid in leftovers:
            _signal(pid, signal.SIGKILL)
        self.popen.wait(WAIT_SECONDS)
        return names

    def _request_twice(self) -> None:
        """A second SIGTERM makes a supervisor requeue its jobs without waiting for the gateway."""
        for seconds in (1, WAIT_SECONDS):
            self.send(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(seconds)
                return

    def _read(self) -> None:
        assert self.popen.stdout
        with self.popen.stdout as log:
            for line in log:
                self._note(line.rstrip("\n"))
        with self._changed:
            self._silent = True
            self._changed.notify_all()

    def _note(self, line: str) -> None:
        event: object = None
        with contextlib.suppress(ValueError):
            event = json.loads(line)
        with self._changed:
            self.lines.append(line)
            if isinstance(event, dict):
                self._events.append(event)
            self._changed.notify_all()


def run(
    *arguments: str, environment: Mapping[str, str], timeout: float = WAIT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """`convertq …` to its end, with stdout and stderr apart."""
    if can_run(arguments, environment):
        return _preloaded().run(arguments, environment, timeout)
    command = [CONSOLE_SCRIPT, *arguments]
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
    )


@cache
def _preloaded() -> Preloaded:
    """One for each process of pytest, from the first command that it runs."""
    preloaded = Preloaded()
    atexit.register(preloaded.close)
    return preloaded


def matches(event: Event, wanted: Mapping[str, object]) -> bool:
    return all(name in event and event[name] == value for name, value in wanted.items())


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def parent_of(pid: int) -> int | None:
    """None once the process is gone; a zombie has none either."""
    with contextlib.suppress(OSError):
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return None if state == "Z" else int(parent)
    return None


def environment_of(pid: int) -> str:
    """As it was at exec; empty for a zombie, and for a process of somebody else."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return ""


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    return "(gone)"


def read_terminal(terminal: int) -> str:
    """All that it was sent. One read returns a part; after the last there is an error, as the other side is closed."""
    shown = b""
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 4096):
            shown += piece
    return shown.decode()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
