"""Single files on a file system: never through a symlink, and in place whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import shutil
import stat
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from convertq.queue.store.run_mark import AnyPath, mark_run, run_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MODE = 0o640
READ_BUFFER_BYTES = 64 * 1024  # a usual document is read with one system call
#: What a file system without hard links answers to link(), and what it answers for a file with too many.
NO_LINK = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)
#: What a kernel or a file system answers that does not know RENAME_NOREPLACE.
NO_SUCH_RENAME = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
RENAME_NOREPLACE = 1
AT_FDCWD = -100
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # not in every libc


class OpenFile(NamedTuple):
    file: BinaryIO
    status: os.stat_result


def open_regular(path: AnyPath) -> OpenFile:
    """Opens it for reading; raises OSError for a symlink, a directory or a pipe, and never waits for one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return OpenFile(open(descriptor, "rb", READ_BUFFER_BYTES), status)
    except BaseException:
        os.close(descriptor)
        raise


def is_regular(path: AnyPath) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


class UnbufferedFile(io.FileIO):
    """Each write is passed on at once, and whole. A buffer would keep what a full disk has refused, and closing the
    file would raise that error again, in place of the one that is being handled."""

    def write(self, data: ReadableBuffer, /) -> int:
        view, written = memoryview(data), 0
        while written < len(view):
            written += super().write(view[written:])
        return written


def create(path: AnyPath) -> BinaryIO:
    """Opens it for writing; nothing may be there, not even a dangling symlink."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    os.fchmod(descriptor, MODE)  # whatever the umask
    return UnbufferedFile(descriptor, "wb")


def sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_directory(directory: AnyPath) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: AnyPath) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def rename_into_place(temporary: AnyPath, target: AnyPath) -> None:
    """Replaces an older file."""
    os.rename(temporary, target)  # noqa: PTH104
    sync_directory(os.path.dirname(target))  # noqa: PTH120


def put_in_place(temporary: AnyPath, result: AnyPath) -> None:
    """A result is written once: a link, unlike a rename, never replaces what another lease holder has put there.

    Raises FileExistsError when another file is there. The temporary file may stay until the caller removes it. The
    caller syncs the directory.
    """
    try:
        _link(temporary, result)
    except FileNotFoundError:
        if os.path.lexists(result):  # perhaps renamed there before a commit that was lost: the caller checks it
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(result)) from None
        raise


def _link(temporary: AnyPath, result: AnyPath) -> None:
    try:
        os.link(temporary, result, follow_symlinks=False)
    except FileExistsError:
        # The same file was put there before a commit that was lost.
        if not os.path.samestat(os.lstat(temporary), os.lstat(result)):
            raise
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        _rename_or_copy(temporary, result)


def _rename_or_copy(temporary: AnyPath, result: AnyPath) -> None:
    """Puts a file in place that cannot be linked. Raises FileExistsError, and replaces nothing, as a link does."""
    if _renameat2 is not None:
        names = os.fsencode(temporary), os.fsencode(result)
        if _renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in NO_SUCH_RENAME:
            raise OSError(number, os.strerror(number), str(result))
    # A worker that is paused in here for longer than its lease goes on writing to a file of its own: a rename over a
    # name that it reserved could replace a newer result by then. A copy that was cut off is not whole, and is removed.
    with open_regular(temporary).file as source, create(result) as sink:
        shutil.copyfileobj(source, sink)
        mark_run(sink, run_of(temporary) or 1)
        sync(sink)
