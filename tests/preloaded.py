"""A process that has imported the commands and forks for each one that a test runs.

Starting Python and importing the driver takes longer than most commands run. What a test sees is the same: a process
of its own with its own environment, descriptors, signals and exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

#: These run for long, or must choose what they import before anything else is there.
STARTED_AFRESH = {("convert",), ("demo",), ("gateway",), ("up",), ("web",), ("worker",)}
MODULES = ("psycopg", "psycopg.types.json", "requests", "convertq.queue.database.connection")
STARTUP_VARIABLES = ("PYTHON", "LANG", "LC_")  # the interpreter reads them before it runs a line
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Preloaded:
    """The tests' side of it: `run` is `subprocess.run` for `convertq …`."""

    def __init__(self) -> None:
        self._address = Path(tempfile.mkdtemp(prefix="convertq-preloaded-"), "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._address))
        self._listener.listen(64)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.preloaded", str(self._listener.fileno())],
            pass_fds=[self._listener.fileno()], cwd=Path(__file__).parents[1], env=_own_environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def close(self) -> None:
        self._server.kill()
        self._server.communicate()
        self._listener.close()
        self._address.unlink()
        self._address.parent.rmdir()

    def run(
        self, arguments: tuple[str, ...], environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        with socket.socket(socket.AF_UNIX) as connection, contextlib.ExitStack() as pipes:
            connection.connect(str(self._address))
            connection.settimeout(timeout)
            readers = self._send(connection, pipes, arguments, environment)
            answers = connection.makefile("r")
            child = int(answers.readline())
            try:
                stdout, stderr = _read_to_the_end(readers, time.monotonic() + timeout)
                code = int(answers.readline())
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        return subprocess.CompletedProcess(["convertq", *arguments], code, stdout.decode(), stderr.decode())

    def _send(
        self,
        connection: socket.socket,
        pipes: contextlib.ExitStack,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
    ) -> tuple[int, int]:
        """Returns where stdout and stderr can be read; the ends that are written are the child's alone."""
        stdout, child_stdout = os.pipe()
        stderr, child_stderr = os.pipe()
        pipes.callback(os.close, stdout)
        pipes.callback(os.close, stderr)
        request = json.dumps({"arguments": arguments, "environment": dict(environment), "directory": str(Path.cwd())})
        try:
            socket.send_fds(connection, [b"\n"], [child_stdout, child_stderr])
            connection.sendall(request.encode(errors="surrogateescape") + b"\n")
        finally:
            os.close(child_stdout)
            os.close(child_stderr)
        return stdout, stderr


def can_run(arguments: tuple[str, ...], environment: Mapping[str, str]) -> bool:
    """Whether a fork shows the same as a start: not where the interpreter itself would start differently."""
    is_short = arguments[:1] not in STARTED_AFRESH and (arguments[:1] != ("top",) or "--once" in arguments)
    return is_short and _startup(environment) == _startup(_own_environment())


def _own_environment() -> dict[str, str]:
    """What the tests pass on of pytest's environment."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def _startup(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(STARTUP_VARIABLES)}


def _read_to_the_end(pipes: tuple[int, int], deadline: float) -> tuple[bytes, bytes]:
    found: dict[int, bytes] = dict.fromkeys(pipes, b"")
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                if chunk := os.read(key.fd, 65536):
                    found[key.fd] += chunk
                else:
                    selector.unregister(key.fd)
    return found[pipes[0]], found[pipes[1]]


# -- the process that forks --


def serve(listener: socket.socket) -> None:
    """Forks for each connection; returns only in a command's own process."""
    while True:
        connection, _ = listener.accept()
        _reap()
        if os.fork() == 0:
            listener.close()
            _die_with_parent()
            _fork_command(connection)
            return
        connection.close()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork_command(connection: socket.socket) -> None:
    """Returns in the command's process; the other one reports its exit code and ends."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
    request: dict[str, Any] = json.loads(connection.makefile("rb").readline().decode(errors="surrogateescape"))
    child = os.fork()
    if child:
        for descriptor in descriptors:
            os.close(descriptor)
        _report(connection, child)
    connection.close()
    _die_with_parent()
    _become(request, descriptors)


def _report(connection: socket.socket, child: int) -> NoReturn:
    """The test may be gone: one that gave up does not wait for the code."""
    with contextlib.suppress(OSError):
        connection.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    sys.argv = ["convertq", *request["arguments"]]


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _preload() -> None:
    from convertq.cli.main import COMMANDS

    for name, (target, _) in COMMANDS.items():
        if (name,) not in STARTED_AFRESH:
            importlib.import_module(target.partition(":")[0])
    for module in MODULES:
        importlib.import_module(module)


def _run_command() -> None:
    """Ends without the interpreter's own clean-up, which writes to every page that it shares with the parent."""
    from convertq.cli.main import main

    try:
        main()
    except SystemExit as ending:
        if not isinstance(ending.code, int) or threading.active_count() > 1:
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ending.code)


if __name__ == "__main__":
    _die_with_parent()
    _preload()
    gc.freeze()  # a collection in a child would copy all of these pages
    serve(socket.socket(fileno=int(sys.argv[1])))
    _run_command()
