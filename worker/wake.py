"""The wake-up shared by all workers of a supervisor: one signal given, one worker served."""

from __future__ import annotations

import contextlib
import os


class Wake:
    """An eventfd, made before the fork. All idle workers wait on it, and the kernel wakes one of them."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def give(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self.descriptor, 1)

    def take(self) -> bool:
        """Read before the claim, never after it: a job that arrives in between keeps its wake-up."""
        with contextlib.suppress(BlockingIOError):
            return os.eventfd_read(self.descriptor) > 0
        return False
