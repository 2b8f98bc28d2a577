"""Owns the directory in which `convertq up` keeps the database, uploads, results and the operator's token."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from convertq.embedded.binaries import EmbeddedError
from convertq.queue.store.regular_file import rename_into_place, sync


def default_path(environment: Mapping[str, str]) -> Path:
    """As the XDG Base Directory Specification says, which ignores a relative path."""
    given = Path(environment.get("XDG_DATA_HOME") or "")
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "convertq"


class DataDirectory:
    """One process at a time owns it, as long as that process lives."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._lock, 20, 0).decode().strip() or "unknown"
            raise EmbeddedError(
                f"convertq up is already running on {self.path} (process {owner}): "
                "stop it with Ctrl-C or SIGTERM, or choose another directory with --data"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    @property
    def database(self) -> Path:
        return self.path / "postgres"

    @property
    def token_file(self) -> Path:
        return self.path / "admin-token"

    def settings(self) -> dict[str, str]:
        """For settings that the environment does not have."""
        return {
            "UPLOADS_DIR": str(self.path / "uploads"),
            "RESULTS_DIR": str(self.path / "results"),
            "ADMIN_TOKEN": self._admin_token(),
        }

    def _admin_token(self) -> str:
        """Made at the first start. The file gets its name when it is whole."""
        if not self.token_file.exists():
            new = self.path / "admin-token.new"
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(f"{secrets.token_hex(32)}\n".encode())
                sync(file)
            rename_into_place(new, self.token_file)
        return self.token_file.read_text().strip()
