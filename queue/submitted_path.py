"""A file on the submitter's own disk, which must not change while it is read."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


class UnchangedFile:
    """A stream that fails at its end if the file has changed since its beginning: it may have mixed two versions."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path, self._version = file, path, _version_of(file)

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        if not data and _version_of(self._file) != self._version:
            raise OSError(errno.ESTALE, "it changed while it was read; submit it again", str(self._path))
        return data


def _version_of(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


@contextmanager
def open_submitted(path: Path) -> Iterator[UnchangedFile]:
    """Raises OSError for anything but a readable, regular file; a pipe or a device is not waited for.

    A symlink is followed: the submitter, not a stranger, has put it there.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield UnchangedFile(file, path)
