"""From the fork to the loop: what a worker process makes anew and what it leaves to its parent."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import signal
import traceback
from collections.abc import Callable, Iterator

from convertq.worker.journal import error_line
from convertq.worker.stopping import HANDLED

PR_SET_PDEATHSIG = 1
M_ARENA_MAX = -8
TO_STOP = set(HANDLED)
_libc = ctypes.CDLL(None)


def run_as_child(parent: int, work: Callable[[], None], mask: set[signal.Signals | int]) -> None:
    """Never returns, and runs none of the parent's exit handlers or destructors.

    What asks it to stop waits, blocked, until `work` can hear it: the handlers here are still the parent's.
    """
    with end_with_last_words():
        _die_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with contextlib.suppress(AttributeError):  # of glibc alone
            _libc.mallopt(M_ARENA_MAX, 1)  # two threads that take turns need no memory pool each
        random.seed()
        gc.enable()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask | TO_STOP)
        work()
        os._exit(0)


@contextlib.contextmanager
def end_with_last_words() -> Iterator[None]:
    """Whatever goes wrong inside, on whichever thread, is said and ends the process: another one takes its place."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - the last word of this process
        last_words = error_line(traceback.format_exc().replace("\n", " | "))
        os.write(2, last_words.encode(errors="replace") + b"\n")
        os._exit(70)


def _die_with(parent: int) -> None:
    """A supervisor that is killed takes its workers with it; the check is for one that died before the call."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
