"""Owns the promises of a trip: several statements in one packet, each answered, bounded in time, and safe to lose."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest
from convertq.worker.db import Database
from convertq.worker.trip import BEGIN, COMMIT, _numbered
from psycopg.pq import TransactionStatus

from tests.conftest import Connect
from tests.jobs import HOLDER, SERVER, Conn, claimed, insert_job, open_database, register_server, row_of, status_of
from tests.waiting import eventually

NOWHERE = {"id": UUID(int=1), "holder": HOLDER, "attempt": 1}
CLAIM = {
    "server": SERVER, "holder": HOLDER, "lease_ttl": 600, "look_for_due": False, "after_priority": -(2**63),
    "after_created_at": datetime(1, 1, 1, tzinfo=UTC), "after_id": UUID(int=0),
}  # fmt: skip
ENDING = {"retention_days": 30, "gateway_ok": None, "gateway_status": None, "gateway_ms": None, "duration_ms": 1}


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with open_database(database_url) as opened:
        yield opened


def test_each_statement_is_answered_with_its_rows(conn: Conn, database: Database) -> None:
    register_server(conn)
    first, second = insert_job(conn, priority=1), insert_job(conn, mapping="ünï")
    for expected, mapping in ((first, "pt_simon_invoice_v1"), (second, "ünï")):
        [nothing, [row]] = database.trips.make(("lock_lease", NOWHERE), ("claim_job", CLAIM))
        assert nothing == []
        assert (row["id"], row["mapping"], row["attempt"], row["pretty"]) == (expected, mapping, 1, True)
    assert status_of(conn, second) == "processing"


def test_a_transaction_may_span_two_trips(conn: Conn, connect: Connect, database: Database) -> None:
    job = claimed(conn)
    database.trips.make(BEGIN, ("lock_lease", job.fence))
    assert database.connection.info.transaction_status == TransactionStatus.INTRANS
    with pytest.raises(psycopg.errors.LockNotAvailable):
        connect().execute("SELECT FROM jobs FOR UPDATE NOWAIT")
    database.trips.make(("complete_job", {**job.fence, "result_path": None, **ENDING}), COMMIT)
    assert database.connection.pgconn.transaction_status == TransactionStatus.IDLE
    assert status_of(conn, job) == "complete"


def test_a_transaction_that_is_left_open_is_ended_by_the_server(conn: Conn, database: Database) -> None:
    database.connection.execute("SET idle_in_transaction_session_timeout = 50")
    job = claimed(conn)
    database.trips.make(BEGIN, ("lock_lease", job.fence))
    gone = "SELECT FROM pg_stat_activity WHERE pid = %s"
    pid = database.connection.info.backend_pid
    eventually(lambda: not conn.execute(gone, [pid]).fetchall(), what="the session is ended")


def test_nothing_of_a_failed_trip_is_kept(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    broken = {**job.fence, "result_path": "x", **ENDING, "retention_days": "many"}
    with pytest.raises(psycopg.Error, match="many"):
        database.trips.make(BEGIN, ("complete_job", {**job.fence, "result_path": "x", **ENDING}),
                            ("complete_job", broken), COMMIT)  # fmt: skip
    database.close()
    assert (row_of(conn, job)["status"], row_of(conn, job)["leased_by"]) == ("processing", HOLDER)


def test_a_trip_waits_no_longer_than_its_patience(conn: Conn, connect: Connect, database: Database) -> None:
    job = claimed(conn)
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM jobs FOR UPDATE")
        database.connection.patience = 0.3
        with pytest.raises(psycopg.OperationalError, match="no answer from the database"):
            database.trips.make(BEGIN, ("lock_lease", job.fence))


def test_a_connection_that_is_cut_is_an_error_and_not_a_hang(conn: Conn, database: Database) -> None:
    conn.execute("SELECT pg_terminate_backend(%s)", [database.connection.info.backend_pid])
    with pytest.raises(psycopg.Error):
        database.trips.make(BEGIN, ("lock_lease", NOWHERE))


def test_a_percent_sign_and_a_name_used_twice_are_numbered_right() -> None:
    text, names = _numbered("claim_job", "public")
    assert b"%(" not in text
    assert b"%%" not in text
    assert names[0] in ("holder", "server")
    assert len(names) == len(set(names)) == 7
