"""A primary and the standby that takes over from it, again and again: each fault swaps the two."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Literal, LiteralString, Self

import psycopg
from convertq.embedded.postgres import FAST, EmbeddedPostgres, free_port
from psycopg.rows import dict_row

from tests.conftest import migrate
from tests.postgres_processes import processes_of, thaw
from tests.standby import Standby
from tests.waiting import Row, eventually

#: By default a standby waits 5 s before it connects to a primary again.
SETTINGS = {**FAST, "wal_retrieve_retry_interval": "100ms"}


class Pair:
    """`with Pair(synchronous=True)`: both on TCP ports that stay the same, whichever is the primary."""

    def __init__(self, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        self.ports = (free_port(), free_port())
        self.primary: EmbeddedPostgres = EmbeddedPostgres(settings=SETTINGS, port=self.ports[0])
        self.standby: Standby | None = None
        self.zombies: list[EmbeddedPostgres] = []

    def __enter__(self) -> Self:
        self.primary.start()
        migrate(self.primary.url())
        self.follow()
        return self

    def __exit__(self, *exc: object) -> None:
        for server in (self.standby, self.primary, *self.zombies):
            if server is not None:
                thaw(server)
                server.close()

    def url(self, *ports: int) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports or self.ports)
        return f"postgresql://postgres@{hosts}/postgres?connect_timeout=2"

    def connect(self) -> psycopg.Connection[Row]:
        """An observer of the primary, whose own commits wait for no standby."""
        return psycopg.connect(
            self.primary.url(), autocommit=True, row_factory=dict_row, options="-c synchronous_commit=local"
        )

    def follow(self) -> None:
        """A new standby, at the port that is free."""
        [port] = set(self.ports) - {self.primary.port}
        self.standby = Standby(self.primary, settings=SETTINGS, port=port).start()
        self._set_synchronous(self.standby, "")  # when it is promoted, nobody follows it yet
        eventually(lambda: self._follows("state = 'streaming'"), what="the standby follows")
        if self.synchronous:
            self._set_synchronous(self.primary, "*")
            eventually(lambda: self._follows("sync_state IN ('sync', 'quorum')"), what="the standby is synchronous")

    def kill_primary(self) -> None:
        self._kill(self.primary)

    def kill_zombies(self) -> None:
        for zombie in self.zombies:
            self._kill(zombie)

    def _kill(self, server: EmbeddedPostgres) -> None:
        """kill -9 of the postmaster and of every backend: no answer is sent any more."""
        for pid in processes_of(server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert server._server is not None
        server._server.wait()
        server._server = None

    def promote(self) -> float:
        """Returns when the new primary accepts writes, by the monotonic clock. The old one is kept as a zombie."""
        assert self.standby is not None
        self.standby.promote()
        promoted_at = time.monotonic()
        self.zombies.append(self.primary)
        self.primary, self.standby = self.standby, None
        return promoted_at

    def thaw_zombies(self) -> None:
        """An old primary that was frozen runs again, beside the new one."""
        for zombie in self.zombies:
            thaw(zombie)

    def bury_zombies(self) -> None:
        """Fences the old primary for good, and frees its port."""
        for zombie in self.zombies:
            thaw(zombie)
            zombie.stop("immediate")
            zombie.close()
        self.zombies.clear()

    def cut_replication(self) -> None:
        """From now on the primary acknowledges, asynchronously, what the standby never receives."""
        assert self.standby is not None
        with psycopg.connect(self.standby.url(), autocommit=True) as conn:
            conn.execute("ALTER SYSTEM SET primary_conninfo = ''")
            conn.execute("SELECT pg_reload_conf()")
        eventually(lambda: not self._follows("true"), what="the standby follows no longer")

    def _follows(self, condition: LiteralString) -> bool:
        with self.connect() as conn:
            return conn.execute(f"SELECT FROM pg_stat_replication WHERE {condition}").fetchone() is not None

    def _set_synchronous(self, server: EmbeddedPostgres, names: Literal["", "*"]) -> None:
        """ALTER SYSTEM writes a file and commits nothing, so it works on a standby too."""
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            conn.execute("SELECT pg_reload_conf()")
