"""The two directories: which path belongs to a job, and how a file comes into being there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

MODE = 0o640
PART = re.compile(r"\.([0-9a-f-]{36})\.([0-9]+)\.([A-Za-z0-9_-]+)\.part")


class Files:
    """Paths are made from ids alone, and the last step of a path is never a symlink that would be followed."""

    def __init__(self, uploads: Path, results: Path) -> None:
        self.uploads, self.results = uploads, results

    def make_directories(self) -> None:
        for directory in (self.uploads, self.results):
            directory.mkdir(parents=True, exist_ok=True)

    def source(self, job_id: UUID) -> Path:
        return self.uploads / f"{job_id}.pdf"

    def result(self, job_id: UUID) -> Path:
        return self.results / f"{job_id}.xml"

    def part(self, job_id: UUID, attempt: int, holder: str) -> Path:
        """The temp file of one attempt: named by its lease, so that whoever ends the lease knows what to remove."""
        return self.results / f".{job_id}.{attempt}.{_in_a_name(holder)}.part"

    def upload_part(self, job_id: UUID) -> Path:
        return self.uploads / f".{job_id}.0.upload.part"

    def parts(self) -> Iterator[tuple[Path, UUID, int, str]]:
        """Temp files of attempts in the result directory: path, job, attempt, and the holder as it is in a name."""
        with os.scandir(self.results) as entries:
            for entry in entries:
                if match := PART.fullmatch(entry.name):
                    with contextlib.suppress(ValueError):
                        yield Path(entry.path), UUID(match[1]), int(match[2]), match[3]

    def is_of(self, part_holder: str, holder: str) -> bool:
        return part_holder == _in_a_name(holder)


def open_regular(path: Path) -> BinaryIO:
    """For reading; raises OSError for a symlink, a directory, a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def create(path: Path) -> BinaryIO:
    """For writing; the file must not be there, not even as a dangling link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    os.fchmod(descriptor, MODE)  # whatever the umask
    return os.fdopen(descriptor, "wb")


def sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def put_in_place(part: Path, result: Path) -> None:
    """A result is written once: a link, unlike a rename, never replaces what another holder has put there.

    Raises FileExistsError when another file is there. The part stays until the caller removes it.
    """
    try:
        os.link(part, result, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(part.lstat(), result.lstat()):  # the same: put there before a commit that was lost
            raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        part.rename(result)  # a file system without hard links
    sync_directory(result.parent)


def rename_into_place(part: Path, target: Path) -> None:
    part.rename(target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


@functools.lru_cache(64)  # a worker has one name, and asks for it with every job
def _in_a_name(holder: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", holder)[-120:]
