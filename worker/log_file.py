"""LOG_FILE: whole lines from many processes and hosts in one file, through every rotation, at no cost for the worker.

Each line is one write to the end of the file under a lock: O_APPEND alone places lines right on one host, but two
clients of a network file system each believe in their own end of the file. A line that cannot be written is dropped and
counted; what happened is said once when it begins and once when it is over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

MODE = 0o640
#: s to wait for the lock of somebody who may be stopped in the middle of a line
PATIENCE = 2.0
STEP = 0.0005
#: what a file system answers that knows no locks; on one host the lines are whole without them
NO_LOCKS = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})

Say = Callable[[logging.LogRecord, str], None]


class SharedFileHandler(logging.Handler):
    """May be made before a fork: the descriptor is shared, its lock belongs to each process alone."""

    def __init__(self, path: Path, say: Say) -> None:
        super().__init__()
        self._path, self._say = path, say
        self._descriptor: int | None = None
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except (TypeError, ValueError):
            self.handleError(record)
            return
        try:
            self._append(line)
        except OSError as error:
            self.dropped += 1
            if self.dropped == 1:
                self._say(record, f"LOG_FILE is not written: {(error.strerror or str(error)).lower()}")
            return
        if self.dropped:
            self._say(record, f"LOG_FILE is written again; lines dropped: {self.dropped}")
            self.dropped = 0

    def reopen(self) -> None:
        """With the next line. A rotation needs no word; a file system that was mounted anew may."""
        with self.lock or contextlib.nullcontext():
            self._let_go()

    def close(self) -> None:
        self._let_go()
        super().close()

    def _append(self, line: bytes) -> None:
        descriptor = self._lock_current_file()
        try:
            write_whole(descriptor, line)
        finally:
            _unlock(descriptor)

    def _lock_current_file(self) -> int:
        """Looked at under the lock: a file that was renamed meanwhile is about to be compressed and removed."""
        patience = 0.0 if self.dropped else PATIENCE  # waited once: until a line gets through, not for each again
        while True:
            descriptor = self._descriptor if self._descriptor is not None else self._open()
            _lock(descriptor, patience)
            if _is_at(descriptor, self._path):
                return descriptor
            self._let_go()  # closing it ends the lock

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags, MODE)
        return self._descriptor

    def _let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def reopen_log_file() -> None:
    for handler in logging.getLogger("convertq").handlers:
        if isinstance(handler, SharedFileHandler):
            handler.reopen()


def write_whole(descriptor: int, line: bytes) -> None:
    """A disk that fills up in the middle of a line gets its beginning taken back: others append only whole lines."""
    written = os.write(descriptor, line)
    if written == len(line):
        return
    try:
        while written < len(line):
            written += os.write(descriptor, line[written:])
    except OSError:
        os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - written))
        raise


def _lock(descriptor: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in NO_LOCKS:
                return
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock") from None
        time.sleep(STEP)


def _unlock(descriptor: int) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
