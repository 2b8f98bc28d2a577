"""A standby in tests for which every commit of its primary waits, while it is frozen."""

from __future__ import annotations

from typing import Literal, LiteralString

import psycopg
from convertq.embedded.postgres import FAST, EmbeddedPostgres

from tests.postgres_processes import freeze, thaw
from tests.standby import Standby
from tests.waiting import eventually

SLOT = "stalling_standby"
#: By default a standby waits 5 s before it connects to a primary that was restarted.
FOLLOWS_QUICKLY = {**FAST, "wal_retrieve_retry_interval": "100ms"}


class StallingStandby(Standby):
    """Follows asynchronously, and so costs nothing, until `stall`; its slot keeps the WAL that it has not received."""

    def __init__(self, primary: EmbeddedPostgres) -> None:
        super().__init__(primary, settings=FOLLOWS_QUICKLY, slot=SLOT)
        with psycopg.connect(primary.url(), autocommit=True) as conn:
            conn.execute("SELECT pg_create_physical_replication_slot(%s)", [SLOT])

    def stall(self) -> None:
        """From now on no commit returns. The standby is synchronous and has the whole WAL before it falls silent."""
        eventually(lambda: self._replicates("state = 'streaming'"), what="the standby follows")
        self._set_synchronous("*")
        eventually(lambda: self._replicates("sync_state IN ('sync', 'quorum')"), what="the standby is synchronous")
        freeze(self)

    def resume(self) -> None:
        """The commits that waited return because the standby has received them, and only then is it asynchronous."""
        thaw(self)
        eventually(
            lambda: self._replicates("flush_lsn >= pg_current_wal_flush_lsn()"),
            30,
            "the standby has received the whole WAL",
        )
        self._set_synchronous("")

    def close(self) -> None:
        thaw(self)
        super().close()

    def _set_synchronous(self, names: Literal["", "*"]) -> None:
        """ALTER SYSTEM writes a file and commits nothing, so it does not wait for the standby itself."""
        with psycopg.connect(self._primary.url(), autocommit=True) as conn:
            conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            conn.execute("SELECT pg_reload_conf()")

    def _replicates(self, condition: LiteralString) -> bool:
        with psycopg.connect(self._primary.url(), autocommit=True) as conn:
            return conn.execute(f"SELECT FROM pg_stat_replication WHERE {condition}").fetchone() is not None
