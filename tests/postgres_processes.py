"""The processes of an embedded PostgreSQL in tests: freezes all of them, and lets them run again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from convertq.embedded.postgres import EmbeddedPostgres

from tests.processes import parent_of, pids


def processes_of(server: EmbeddedPostgres) -> list[int]:
    """The postmaster first, so that it starts no process between a signal to it and the signals to its children."""
    assert server.pid is not None
    return [server.pid, *(pid for pid in pids() if parent_of(pid) == server.pid)]


def freeze(server: EmbeddedPostgres) -> None:
    """The kernel still accepts connections and data for the server; nothing is answered."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    for pid in processes_of(server)[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


def thaw(server: EmbeddedPostgres) -> None:
    if server.pid is None:
        return
    for pid in processes_of(server):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def thawed_in_the_end(server: EmbeddedPostgres) -> Iterator[None]:
    """A frozen server cannot be stopped: whatever happens inside, it runs again afterwards."""
    try:
        yield
    finally:
        thaw(server)
