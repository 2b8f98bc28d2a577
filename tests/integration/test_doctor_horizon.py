"""doctor names what keeps dead rows when it is not a session of this database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from convertq.embedded.postgres import FAST, EmbeddedPostgres
from convertq.queue.doctor import sessions
from convertq.queue.doctor.finding import Finding, Limits
from psycopg.rows import dict_row

from tests.conftest import migrate
from tests.findings import BAD, WARN, MakeContext, find
from tests.jobs import Conn, one
from tests.standby import Standby
from tests.waiting import eventually, wait_for_row

LIMITS = Limits(dead_rows=100)
PRIMARY = {**FAST, "max_prepared_transactions": "2", "wal_level": "logical"}
STANDBY = {**PRIMARY, "hot_standby_feedback": "on", "wal_receiver_status_interval": "1"}


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings=PRIMARY) as server:
        migrate(server.url())
        with psycopg.connect(server.url()) as conn:
            conn.execute("INSERT INTO jobs (bytes, sha256) SELECT 1, md5(n::text) FROM generate_series(1, 1000) n")
        yield server


@pytest.fixture
def conn(primary: EmbeddedPostgres) -> Iterator[Conn]:
    with psycopg.connect(primary.url(), autocommit=True, row_factory=dict_row) as conn:
        yield conn


def dead_rows(conn: Conn) -> int:
    """After a vacuum, which removes what it may."""
    conn.execute("VACUUM jobs")
    return int(one(conn, "SELECT n_dead_tup AS rows FROM pg_stat_all_tables WHERE relid = 'jobs'::regclass")["rows"])


def touch_every_job(conn: Conn) -> None:
    conn.execute("UPDATE jobs SET priority = priority + 1")
    conn.execute("SELECT pg_stat_force_next_flush()")


def vacuum_line(make_context: MakeContext, primary: EmbeddedPostgres) -> Finding:
    [finding] = find(sessions.check_vacuum, make_context(LIMITS, DATABASE_URL=primary.url()))
    return finding


def test_a_forgotten_prepared_transaction(make_context: MakeContext, primary: EmbeddedPostgres, conn: Conn) -> None:
    conn.execute("BEGIN")
    conn.execute("SELECT pg_current_xact_id()")
    conn.execute("PREPARE TRANSACTION 'forgotten'")
    touch_every_job(conn)
    assert dead_rows(conn) == 1000
    finding = vacuum_line(make_context, primary)
    assert (finding.state, "kept by prepared forgotten (postgres)" in finding.what) == (BAD, True), finding
    assert finding.remedy == "commit or roll back that prepared transaction"
    conn.execute("ROLLBACK PREPARED 'forgotten'")
    finding = vacuum_line(make_context, primary)
    assert (finding.state, "nobody holds them" in finding.what) == (WARN, True), finding
    assert dead_rows(conn) == 0


def test_a_long_query_on_a_standby_and_then_the_slot_that_the_standby_left(
    make_context: MakeContext, primary: EmbeddedPostgres, conn: Conn
) -> None:
    conn.execute("SELECT pg_create_physical_replication_slot('reports')")
    with Standby(primary, settings=STANDBY, slot="reports") as standby:
        with closing(psycopg.connect(standby.url())) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM jobs")
            wait_for_row(conn, "SELECT slot_name FROM pg_replication_slots WHERE xmin IS NOT NULL")
            touch_every_job(conn)
            assert dead_rows(conn) == 1000
            finding = vacuum_line(make_context, primary)
            assert (finding.state, "kept by slot reports (physical), active" in finding.what) == (BAD, True), finding
            standby.stop("immediate")
        left = eventually(lambda: unused(vacuum_line(make_context, primary)))
        assert left is not None
        assert left.remedy == "drop that replication slot, or bring its consumer back"
    conn.execute("SELECT pg_drop_replication_slot('reports')")
    assert dead_rows(conn) == 0


def unused(finding: Finding) -> Finding | None:
    """The server notices a little later that the standby is gone."""
    return finding if "kept by slot reports (physical), unused" in finding.what else None


def test_a_long_query_on_a_standby_without_a_slot(
    make_context: MakeContext, primary: EmbeddedPostgres, conn: Conn
) -> None:
    with Standby(primary, settings=STANDBY) as standby, psycopg.connect(standby.url()) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM jobs")
        wait_for_row(conn, "SELECT pid FROM pg_stat_replication WHERE backend_xmin IS NOT NULL")
        touch_every_job(conn)
        assert dead_rows(conn) == 1000
        finding = vacuum_line(make_context, primary)
        assert (finding.state, "kept by standby walreceiver" in finding.what) == (BAD, True), finding
        assert finding.remedy == "end the long query there, or set hot_standby_feedback = off there"
        conn.execute("CREATE ROLE plain LOGIN")
        [finding] = find(
            sessions.check_vacuum, make_context(LIMITS, DATABASE_URL=primary.url().replace("postgres@", "plain@"))
        )
        assert "kept by standby walreceiver (where is hidden)" in finding.what
        reader.rollback()
        eventually(lambda: dead_rows(conn) == 0)


def test_a_logical_slot_is_not_blamed_it_keeps_rows_of_the_catalogue_alone(
    make_context: MakeContext, primary: EmbeddedPostgres, conn: Conn
) -> None:
    eventually(lambda: not conn.execute("SELECT FROM pg_stat_replication").rowcount, what="no standby of another test")
    conn.execute("SELECT pg_create_logical_replication_slot('changes', 'pgoutput')")
    touch_every_job(conn)
    finding = vacuum_line(make_context, primary)
    assert (finding.state, "nobody holds them" in finding.what) == (WARN, True), finding
    assert dead_rows(conn) == 0
    conn.execute("SELECT pg_drop_replication_slot('changes')")
