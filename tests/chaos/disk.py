"""A disk that can be full: a small tmpfs, mounted where only this process and its children see it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from pathlib import Path
from typing import Self

CLONE_NEWNS = 0x00020000
PIECE = 1 << 16


class CannotMount(Exception):
    """Why there is no such disk here."""


class SmallDisk:
    """`with SmallDisk(path, 8) as disk`: 8 MB at `path`; raises CannotMount without the right to mount.

    Enter it on the main thread: the kernel gives the mounts to the thread, and to whatever it starts from then on.
    """

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path, self._megabytes = path, megabytes
        self._filler = path / "filler"

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise CannotMount("mounting a small disk needs root")
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS) != 0:
            raise CannotMount(f"no mount namespace of our own: {os.strerror(ctypes.get_errno())}")
        run("mount", "--make-rprivate", "/")
        run("mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.path))
        return self

    def __exit__(self, *exc: object) -> None:
        run("umount", "--lazy", str(self.path))

    def fill(self, leave: int = 0) -> None:
        """Not one byte more fits, or `leave` bytes."""
        with open(self._filler, "ab", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(b"\0" * PIECE):
                pass
        if leave:
            os.truncate(self._filler, max(0, self._filler.stat().st_size - leave))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


def run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise CannotMount(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise CannotMount(error.stderr.strip()) from None
