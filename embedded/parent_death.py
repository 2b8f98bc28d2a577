"""Ties the life of a child process to that of the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def ends_with_parent(number: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the kernel then sends this signal to the child when the thread that started it has ended."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)  # loaded before the fork: the child must not take the loader's locks

    def arrange() -> None:
        if sys.platform == "linux":
            libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl took effect
            os._exit(1)

    return arrange
