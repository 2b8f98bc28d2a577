"""Owns the throw-away folders of the embedded server, and sweeps those whose owner was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "cqpg-"
ROOMY = 1 << 30  # Docker's /dev/shm has 64 MB
SETTING_UP_SECONDS = 60


class Scratch:
    """A folder that only this process uses; its lock is held as long as the process lives."""

    def __init__(self, base: Path, account: pwd.struct_passwd | None) -> None:
        sweep(base, {os.geteuid(), account.pw_uid if account else os.geteuid()})
        self.path = self.inside = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        self.account, self.inherited = account, ()
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        if account:
            os.chown(self.path, account.pw_uid, account.pw_gid)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def fast_base() -> Path:
    """CREATE DATABASE is bound by the file system: 8 ms in memory, 50 to 130 ms on a disk."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK | os.X_OK):
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize > ROOMY:
            return memory
    return Path("/tmp")  # not TMPDIR: a socket's path ends at 107 bytes


def executable_base() -> Path:
    """Containers mount /dev/shm noexec, hardened hosts /tmp."""
    for base in (Path("/tmp"), Path("/var/tmp")):
        if os.access(base, os.W_OK | os.X_OK) and not os.statvfs(base).f_flag & os.ST_NOEXEC:
            return base
    return Path(tempfile.gettempdir())


def sweep(base: Path, owners: set[int]) -> None:
    """Remove what a killed owner left behind; its server has stopped with it."""
    for old in base.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            found = old.lstat()
            fresh = time.time() - found.st_mtime < SETTING_UP_SECONDS  # made, but perhaps not yet locked
            if found.st_uid in owners and not fresh and _is_abandoned(old):
                shutil.rmtree(old, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError, an OSError: in use
    finally:
        os.close(lock)
    return not (folder / "data" / "postmaster.pid").exists()
