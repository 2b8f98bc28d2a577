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
from typing import BinaryIO, NamedTuple
from uuid import UUID

MODE = 0o640
PART = re.compile(r"\.([0-9a-f-]{36})\.([0-9]+)\.([A-Za-z0-9_-]+)\.part")


AnyPath = str | Path


class Paths(NamedTuple):
    """Of one attempt, as plain strings: for every job anew, pathlib would take longer than the file system."""

    source: str
    part: str
    result: str


class Files:
    """Paths are made from ids alone, and the last step of a path is never a symlink that would be followed."""

    def __init__(self, uploads: Path, results: Path) -> None:
        self.uploads, self.results = uploads, results

    def of_attempt(self, name: str, attempt: int, holder: str) -> Paths:
        """`name`: the job's id. The part is named by its lease: whoever ends the lease knows what to remove."""
        uploads, results = str(self.uploads), str(self.results)
        part = f"{results}/.{name}.{attempt}.{_in_a_name(holder)}.part"
        return Paths(f"{uploads}/{name}.pdf", part, f"{results}/{name}.xml")

    def make_directories(self) -> None:
        for directory in (self.uploads, self.results):
            directory.mkdir(parents=True, exist_ok=True)

    def source(self, job_id: UUID) -> Path:
        return self.uploads / f"{job_id}.pdf"

    def result(self, job_id: UUID) -> Path:
        return self.results / f"{job_id}.xml"

    def part(self, job_id: UUID, attempt: int, holder: str) -> Path:
        return Path(self.of_attempt(str(job_id), attempt, holder).part)

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


def open_regular(path: AnyPath) -> BinaryIO:
    """For reading; raises OSError for a symlink, a directory, a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_regular(path: AnyPath) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def create(path: AnyPath) -> BinaryIO:
    """For writing; the file must not be there, not even as a dangling link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    os.fchmod(descriptor, MODE)  # whatever the umask
    return os.fdopen(descriptor, "wb")


def sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def put_in_place(part: AnyPath, result: AnyPath) -> None:
    """A result is written once: a link, unlike a rename, never replaces what another holder has put there.

    Raises FileExistsError when another file is there. The part stays until the caller removes it.
    """
    try:
        os.link(part, result, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(os.lstat(part), os.lstat(result)):  # the same: put there before a commit that was lost
            raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
            raise
        os.rename(part, result)  # noqa: PTH104 - a file system without hard links
    sync_directory(os.path.dirname(result))  # noqa: PTH120


def rename_into_place(part: Path, target: Path) -> None:
    part.rename(target)
    sync_directory(target.parent)


def sync_directory(directory: AnyPath) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: AnyPath) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108


@functools.lru_cache(64)  # a worker has one name, and asks for it with every job
def _in_a_name(holder: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", holder)[-120:]
