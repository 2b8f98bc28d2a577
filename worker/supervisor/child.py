"""A forked child, from the fork to its work: it resets the signals, the random state and the memory allocator."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import signal
import traceback
from collections.abc import Callable, Iterator

from convertq.queue.log.journal import error_line
from convertq.worker.loop.stopping import HANDLED

PR_SET_PDEATHSIG = 1
M_ARENA_MAX = -8
STOP_SIGNALS = set(HANDLED)
_libc = ctypes.CDLL(None)


def run_as_child(parent: int, work: Callable[[], None], mask: set[signal.Signals | int]) -> None:
    """Never returns, and runs none of the parent's exit handlers or destructors.

    Signals to stop stay blocked until `work` has installed its own handlers: until then the parent's are in place.
    """
    with exit_on_any_error():
        _arrange_to_die_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with contextlib.suppress(AttributeError):  # only glibc has it
            _libc.mallopt(M_ARENA_MAX, 1)  # the two threads take turns, so one memory pool is enough
        random.seed()
        gc.enable()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask | STOP_SIGNALS)
        work()
        os._exit(0)


@contextlib.contextmanager
def exit_on_any_error() -> Iterator[None]:
    """Logs any error on any thread and ends the process; the supervisor replaces it."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - nothing may escape into the parent's code
        line = error_line(traceback.format_exc().replace("\n", " | "))
        os.write(2, line.encode(errors="replace") + b"\n")
        os._exit(70)


def _arrange_to_die_with(parent: int) -> None:
    """The kernel kills this process when its supervisor dies; the check is for one that died before the call."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
