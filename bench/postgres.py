"""The server of every contender: embedded, with PostgreSQL's own durable defaults, tuned for none of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from convertq.embedded.binaries import unprivileged_account
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.embedded.scratch import Scratch

#: where the server's data and the documents are: on a disk, where an fsync is one. BENCH_DIR names another place.
PLACE = Path(os.environ.get("BENCH_DIR") or "/var/tmp")


def file_system() -> str:
    """Of the place: tmpfs, ext4, …"""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    return max((len(point), kind) for point, kind in mounts if PLACE.resolve().is_relative_to(point))[1]


class DurablePostgres(EmbeddedPostgres):
    """Without settings: fsync, synchronous_commit and full_page_writes are on, as PostgreSQL comes."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings=settings or {}, port=0)
        self._folder.close()
        self._folder = Scratch(PLACE, unprivileged_account())
        self._data = self._folder.path / "data"
        self.files = self._folder.path / "files"  # of the contenders; removed with the server's own
        self.files.mkdir()

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A fresh, empty database; its URL."""
        with psycopg.connect(self.url(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
            try:
                yield urlunsplit(urlsplit(self.url())._replace(path=f"/{name}"))
            finally:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def server_version(self) -> str:
        with psycopg.connect(self.url()) as conn:
            return conn.info.parameter_status("server_version") or ""

    def settle(self) -> None:
        """What one contender has written is not written back at the cost of the next."""
        with psycopg.connect(self.url(), autocommit=True) as admin:
            admin.execute("CHECKPOINT")
