"""The faults of the database: stopped, frozen, stalled, sessions ended, rows locked, the schema changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psycopg
from convertq.embedded.postgres import StopMode

from tests.chaos.cluster import Cluster
from tests.chaos.plan import Kind
from tests.postgres_processes import freeze, thaw
from tests.processes import Process
from tests.waiting import Row

Undo = Callable[[], object]
STOPS: dict[Kind, StopMode] = {
    Kind.RESTART_FAST: "fast",
    Kind.RESTART_IMMEDIATE: "immediate",
    Kind.OUTAGE: "fast",
}
MIGRATION_SECONDS = 60.0  # for one that nobody stands in the way of


class DatabaseFaults:
    """One at a time takes the database away from everybody; the others may come on top. On the main thread, with
    which the kernel ends the server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._taken_by: Kind | None = None
        self._migrations = 0
        self._migrate: Process | None = None  # the last run of the command

    @property
    def is_away(self) -> bool:
        """Nobody can connect. A stalled standby stalls commits alone."""
        return self._taken_by not in (None, Kind.STALL_STANDBY)

    def take_away(self, kind: Kind) -> Undo | None:
        if self._taken_by:
            return None
        postgres, standby = self._cluster.postgres, self._cluster.standby
        if kind is Kind.FREEZE:
            freeze(postgres)
            undo: Undo = lambda: thaw(postgres)  # noqa: E731
        elif kind is Kind.STALL_STANDBY:
            try:
                standby.stall()
            except (AssertionError, psycopg.Error):
                return None  # it does not follow yet, after a restart of the primary
            undo = standby.resume
        else:
            postgres.stop(STOPS[kind])
            undo = postgres.start
        self._taken_by = kind
        return lambda: self._give_back(undo)

    def _give_back(self, undo: Undo) -> None:
        undo()
        self._taken_by = None

    def end_backends(self) -> bool:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'convertq:%'"
        with contextlib.suppress(psycopg.Error):
            if not self.is_away:
                with self._cluster.connect() as conn:
                    conn.execute(query)
                return True
        return False

    def lock_row(self, status: str) -> Undo | None:
        """Some row in this state, in a transaction of an application's own."""
        query = "SELECT id FROM jobs WHERE status = %s LIMIT 1 FOR UPDATE SKIP LOCKED"
        return self._in_a_transaction(lambda conn: conn.execute(query, [status]).fetchone())

    def migrate(self) -> Undo | None:
        """As long as the reader's transaction is open the migration has to wait, and others must not wait with it."""
        if self._migrate and self._migrate.popen.poll() is None:
            return None
        undo = self._in_a_transaction(lambda conn: conn.execute("LOCK TABLE jobs IN ACCESS SHARE MODE"))
        if undo:
            self._cluster.release.add_column()
            self._migrations += 1
            self._run_migrate()
        return undo

    def repeat_failed_migration(self) -> None:
        """As its operator does after an outage."""
        if self._migrate and self._migrate.popen.poll() and not self.is_away:
            self._run_migrate()

    def finish_migrations(self) -> int:
        """Returns how many migrations the storm has added; all of them are applied now."""
        if self._migrate:
            self._migrate.wait(MIGRATION_SECONDS)
            self._run_migrate()
            code = self._migrate.wait(MIGRATION_SECONDS)
            assert code == 0, f"convertq migrate failed: {self._migrate.tail()}"
        return self._migrations

    def _run_migrate(self) -> None:
        environment = {**self._cluster.environment(), **self._cluster.release.environment}
        self._migrate = Process("migrate", environment=environment)

    def _in_a_transaction(self, act: Callable[[psycopg.Connection[Row]], object]) -> Undo | None:
        """Closing its connection ends it. None where there is no database, or `act` found nothing."""
        if self.is_away:
            return None
        with contextlib.suppress(psycopg.Error):
            conn = self._cluster.connect()
            conn.execute("SET lock_timeout = '1s'")
            conn.execute("BEGIN")
            if act(conn):
                return conn.close
            conn.close()
        return None


def nothing() -> None:
    """The undoing of a fault that is over as soon as it has begun."""
