"""A Redis of its own for a round, on the same disk, with its append-only file synced once a second."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import running

STARTS_WITHIN_SECONDS = 10.0


def missing() -> str:
    return "" if shutil.which("redis-server") else "no redis-server is on PATH (Debian: apt-get install redis-server)"


def socket_path(home: Path) -> Path:
    return home / "redis.sock"


@contextmanager
def serving(home: Path) -> Iterator[list[int]]:
    command = [
        "redis-server", "--port", "0", "--unixsocket", str(socket_path(home)), "--dir", str(home),
        "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
    ]  # fmt: skip
    with running(command, None, home / "redis.log") as process:
        deadline = time.monotonic() + STARTS_WITHIN_SECONDS
        while not socket_path(home).exists():
            if time.monotonic() > deadline:
                raise TimeoutError((home / "redis.log").read_text(errors="replace")[-500:])
            time.sleep(0.02)
        yield [process.pid]


def length_of_hash(home: Path, key: str) -> int:
    """`HLEN`, over the protocol itself: the harness needs no client for one number."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_path(home)))
        client.sendall(f"HLEN {key}\r\n".encode())
        return int(client.makefile().readline().removeprefix(":"))
