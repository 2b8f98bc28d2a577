"""A pipeline: several statements in one round trip, each answered and bounded in time."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from convertq.queue.claim import NO_CLAIM, NOTHING_FINISHED
from convertq.queue.completion import FinishedJob, completion_parameters
from convertq.queue.database.database import Database
from convertq.queue.database.errors import server_is_gone
from convertq.queue.database.pipeline import BEGIN, COMMIT, Statement, numbered
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Completed
from psycopg.pq import TransactionStatus

from tests.conftest import Connect
from tests.jobs import HOLDER, SERVER, Conn, claimed, insert_job, open_database, register_server, row_of, status_of
from tests.waiting import eventually

NOWHERE = {"id": UUID(int=1), "holder": HOLDER, "attempt": 1, "run": 1}
CLAIM = {**NO_CLAIM, **NOTHING_FINISHED, "server": SERVER, "holder": HOLDER, "lease_ttl": 600, "wanted": 1}


def completion_of(job: ClaimedJob) -> Statement:
    parameters = {**NO_CLAIM, **completion_parameters([FinishedJob(job, Completed("x"))], 30)}
    return "complete_and_claim", parameters


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with open_database(database_url) as opened:
        yield opened


def test_each_statement_is_answered_with_its_rows(conn: Conn, database: Database) -> None:
    register_server(conn)
    first, second = insert_job(conn, priority=1), insert_job(conn, mapping="ünï")
    for expected, mapping in ((first, "pt_simon_invoice_v1"), (second, "ünï")):
        [nothing, [row]] = database.pipeline.run(("lock_lease", NOWHERE), ("complete_and_claim", CLAIM))
        assert nothing == []
        assert (row["id"], row["mapping"], row["attempt"], row["pretty"]) == (expected, mapping, 1, True)
    assert status_of(conn, second) == "processing"


def test_a_transaction_may_span_two_trips(conn: Conn, connect: Connect, database: Database) -> None:
    job = claimed(conn)
    database.pipeline.run(BEGIN, ("lock_lease", job.fence))
    assert database.connection.info.transaction_status == TransactionStatus.INTRANS
    with pytest.raises(psycopg.errors.LockNotAvailable):
        connect().execute("SELECT FROM jobs FOR UPDATE NOWAIT")
    database.pipeline.run(completion_of(job), COMMIT)
    assert database.connection.pgconn.transaction_status == TransactionStatus.IDLE
    assert status_of(conn, job) == "complete"


def test_a_transaction_that_is_left_open_is_ended_by_the_server(conn: Conn, database: Database) -> None:
    database.connection.execute("SET idle_in_transaction_session_timeout = 50")
    job = claimed(conn)
    database.pipeline.run(BEGIN, ("lock_lease", job.fence))
    gone = "SELECT FROM pg_stat_activity WHERE pid = %s"
    pid = database.connection.info.backend_pid
    eventually(lambda: not conn.execute(gone, [pid]).fetchall(), what="the session is ended")


def test_nothing_of_a_failed_trip_is_kept(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    broken = {**job.fence, "lease_ttl": "many"}
    with pytest.raises(psycopg.Error, match="many"):
        database.pipeline.run(BEGIN, completion_of(job), ("extend_lease", broken), COMMIT)
    assert (row_of(conn, job)["status"], row_of(conn, job)["leased_by"]) == ("processing", HOLDER)


def test_a_statement_that_fails_is_told_by_its_sqlstate_and_leaves_the_connection_usable(
    conn: Conn, connect: Connect, database: Database
) -> None:
    job, other = claimed(conn), connect()
    database.connection.execute("SET lock_timeout = '50ms'")
    with other.transaction():
        other.execute("SELECT FROM jobs FOR UPDATE")
        for _ in range(2):  # prepared by the first
            with pytest.raises(psycopg.errors.LockNotAvailable) as failed:
                database.pipeline.run(BEGIN, ("lock_lease", job.fence), ("extend_lease", {**job.fence, "lease_ttl": 9}))
            assert failed.value.diag.message_primary == "canceling statement due to lock timeout"
            assert database.connection.info.transaction_status == TransactionStatus.IDLE
    assert database.one("lock_lease", **job.fence) == {"id": job.id}
    held = [{"id": job.id}]
    more = (("lock_lease", job.fence), ("extend_lease", {**job.fence, "lease_ttl": 9}))
    assert database.pipeline.run(BEGIN, *more, COMMIT) == [[], held, held, []]


def test_statements_that_psycopg_deallocated_are_prepared_again(conn: Conn, database: Database) -> None:
    """It does so after every transaction of its own that it rolls back."""
    job = claimed(conn)
    held = [{"id": job.id}]
    assert database.pipeline.run(BEGIN, ("lock_lease", job.fence), COMMIT) == [[], held, []]
    for _ in range(3):  # psycopg prepares what is repeated
        database.one("lock_lease", **job.fence)
    with pytest.raises(psycopg.errors.DivisionByZero), database.transaction():
        database.connection.execute("SELECT 1 / 0")
    ours = "SELECT FROM pg_prepared_statements WHERE starts_with(name, 'convertq_')"
    assert database.connection.execute(ours).fetchall() == []
    assert database.pipeline.run(BEGIN, ("lock_lease", job.fence), COMMIT) == [[], held, []]


def test_a_transaction_whose_statements_were_deallocated_is_not_committed(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    database.pipeline.run(BEGIN, ("lock_lease", job.fence), COMMIT)
    database.pipeline.run(BEGIN, completion_of(job))
    database.connection.execute("DEALLOCATE ALL")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        database.pipeline.run(COMMIT)
    assert status_of(conn, job) == "processing"
    assert database.pipeline.run(BEGIN, ("lock_lease", job.fence), COMMIT) == [[], [{"id": job.id}], []]


def test_a_statement_that_cannot_be_prepared_is_prepared_again(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    conn.execute("ALTER TABLE jobs RENAME TO jobs_elsewhere")
    with pytest.raises(psycopg.errors.UndefinedTable):
        database.pipeline.run(BEGIN, ("lock_lease", job.fence))
    conn.execute("ALTER TABLE jobs_elsewhere RENAME TO jobs")
    assert database.pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]


def test_a_migration_that_changes_a_column_reaches_what_was_prepared_before_it(conn: Conn, database: Database) -> None:
    register_server(conn)
    insert_job(conn, pretty=True)
    [[row]] = database.pipeline.run(("complete_and_claim", CLAIM))
    assert row["pretty"] is True
    conn.execute("ALTER TABLE jobs ALTER pretty DROP DEFAULT, ALTER pretty TYPE text")
    insert_job(conn, pretty="very")
    [[row]] = database.pipeline.run(("complete_and_claim", CLAIM))
    assert row["pretty"] == "very"


def test_a_pipeline_waits_no_longer_than_its_answer_timeout(conn: Conn, connect: Connect, database: Database) -> None:
    job = claimed(conn)
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM jobs FOR UPDATE")
        database.connection.answer_timeout_seconds = 0.3
        with pytest.raises(psycopg.OperationalError, match="no answer from the database"):
            database.pipeline.run(BEGIN, ("lock_lease", job.fence))


def test_a_connection_that_is_cut_is_an_error_and_not_a_hang(conn: Conn, database: Database) -> None:
    conn.execute("SELECT pg_terminate_backend(%s, 5000)", [database.connection.info.backend_pid])
    with pytest.raises(psycopg.Error) as lost:
        database.pipeline.run(BEGIN, ("lock_lease", NOWHERE))
    assert server_is_gone(lost.value)


def test_a_percent_sign_and_a_name_used_twice_arenumbered_right() -> None:
    text, names = numbered("complete_and_claim", "public")
    assert b"%(" not in text
    assert b"%%" not in text
    assert names[0] == "holder"
    assert len(names) == len(set(names)) == 15
