"""Owns the folder of a PostgreSQL server whose data is kept, and the lock that shows whether the server still runs."""

from __future__ import annotations

import fcntl
import os
import pwd
import time
from pathlib import Path

from convertq.embedded.binaries import EmbeddedError, unprivileged_account

LONGEST_SOCKET_PATH = 107  # bytes, of Linux
SOCKET = ".s.PGSQL.5432"
STOP_TIMEOUT_SECONDS = 30.0
LOG_BYTES = 1 << 20  # a larger log is set aside at the next start


class KeptFolder:
    """Every process of the server inherits the lock, so a process that gets it knows that none of them is left."""

    def __init__(self, path: Path) -> None:
        refuse_long_path(path)
        self.path = path
        path.mkdir(mode=0o700, exist_ok=True)
        self.account = owner_of(path)
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.inherited = (self._lock,)
        await_lock(self._lock, path)
        # PostgreSQL would refuse to start while the number of its killed predecessor belongs to another process.
        for left in (path / "data" / "postmaster.pid", path / f"{SOCKET}.lock"):
            left.unlink(missing_ok=True)
        log = path / "log"
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.rename(path / "log.old")

    @property
    def inside(self) -> Path:
        """The folder as the server addresses it. Another account may not enter the folders above it, such as /root,
        but the inherited descriptor leads directly to it."""
        return Path(f"/proc/self/fd/{self._lock}") if self.account else self.path

    def close(self) -> None:
        """The files stay."""
        os.close(self._lock)


def refuse_long_path(path: Path) -> None:
    if len(os.fsencode(path / SOCKET)) > LONGEST_SOCKET_PATH:
        raise EmbeddedError(f"{path}: too long for the path of a socket; choose a shorter one with --data")


def owner_of(path: Path) -> pwd.struct_passwd | None:
    """The account that PostgreSQL runs under; a new folder is given to it, and an old one decides which it is."""
    owner = path.stat().st_uid
    if os.geteuid() != 0:
        if owner != os.geteuid():
            raise EmbeddedError(f"{path} belongs to another user: run as that user, or choose another --data")
        return None
    if owner != 0:
        return pwd.getpwuid(owner)
    account = unprivileged_account()
    assert account is not None
    os.chown(path, account.pw_uid, account.pw_gid)
    return account


def await_lock(lock: int, path: Path) -> None:
    """A server whose parent was killed ends by itself, which takes a moment."""
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                break
        time.sleep(0.05)
    raise EmbeddedError(f"a PostgreSQL server still uses {path}: end it, then run the same command again")
