"""LOG_FILE: whole lines from many processes and hosts in one file, through every rotation.

Each line is one write to the end of the file under a lock: O_APPEND alone keeps lines whole on one host, but two
clients of a network file system may each see another end of the file. A line that cannot be written is dropped and
counted; the beginning and the end of such a time are logged once each.
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
#: Another process may be stopped while it holds the lock.
LOCK_TIMEOUT_SECONDS = 2.0
LOCK_RETRY_SECONDS = 0.0005
#: The errors of a file system without locks. On one host the lines are whole without them.
NO_LOCKS = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})

ReportProblem = Callable[[logging.LogRecord, str], None]


class SharedFileHandler(logging.Handler):
    """May be made before a fork: the descriptor is shared, but its lock belongs to one process."""

    def __init__(self, path: Path, report_problem: ReportProblem) -> None:
        super().__init__()
        self._path, self._report_problem = path, report_problem
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
                self._report_problem(record, f"LOG_FILE is not written: {(error.strerror or str(error)).lower()}")
            return
        if self.dropped:
            self._report_problem(record, f"LOG_FILE is written again; lines dropped: {self.dropped}")
            self.dropped = 0

    def reopen(self) -> None:
        """The next line opens the file again. A rotation is noticed without it, a new mount may not be."""
        with self.lock or contextlib.nullcontext():
            self._close_file()

    def close(self) -> None:
        self._close_file()
        super().close()

    def _append(self, line: bytes) -> None:
        descriptor = self._lock_current_file()
        try:
            write_whole(descriptor, line)
        finally:
            _unlock(descriptor)

    def _lock_current_file(self) -> int:
        """The path is checked under the lock: a file that was renamed meanwhile will be compressed and removed."""
        # After one line was dropped the others do not wait, until one is written again.
        timeout_seconds = 0.0 if self.dropped else LOCK_TIMEOUT_SECONDS
        while True:
            descriptor = self._descriptor if self._descriptor is not None else self._open()
            _lock(descriptor, timeout_seconds)
            if _is_at(descriptor, self._path):
                return descriptor
            self._close_file()  # closing the file ends the lock

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags, MODE)
        return self._descriptor

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def reopen_log_file() -> None:
    for handler in logging.getLogger("convertq").handlers:
        if isinstance(handler, SharedFileHandler):
            handler.reopen()


def write_whole(descriptor: int, line: bytes) -> None:
    """When the disk fills up in the middle of a line, the beginning of the line is removed again."""
    written = os.write(descriptor, line)
    if written == len(line):
        return
    try:
        while written < len(line):
            written += os.write(descriptor, line[written:])
    except OSError:
        os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - written))
        raise


def _lock(descriptor: int, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
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
        time.sleep(LOCK_RETRY_SECONDS)


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
