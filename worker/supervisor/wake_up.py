"""A wake-up shared by processes: each post wakes one of those that wait."""

from __future__ import annotations

import contextlib
import os
import select


class WakeUp:
    """An eventfd, made before the fork. All idle workers wait on it, and the kernel wakes one of them."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def post(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self.descriptor, 1)

    @property
    def is_posted(self) -> bool:
        """Whether a post has not been taken yet."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def take(self) -> bool:
        """Must be called before the claim, never after it: a job that arrives in between keeps its wake-up."""
        with contextlib.suppress(BlockingIOError):
            return os.eventfd_read(self.descriptor) > 0
        return False
