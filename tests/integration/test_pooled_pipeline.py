"""Behind a transaction pooler: statements are prepared once on each server connection, and all its clients share them.

A test's session stands for one server connection of the pool; tests/lifecycle/test_pooler.py has a real PgBouncer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import psycopg
import pytest
from convertq.queue.claim import NO_CLAIM, NOTHING_FINISHED, array_literal
from convertq.queue.completion import FinishedJob, completion_parameters
from convertq.queue.database.database import Database
from convertq.queue.database.errors import server_is_gone
from convertq.queue.database.pipeline import BEGIN, COMMIT, Statement
from convertq.queue.database.pooled_pipeline import LOSSES_OF_A_RESETTING_POOLER, Command, PooledPipeline
from convertq.queue.job import ClaimedJob
from convertq.queue.outcome import Completed
from convertq.queue.scan_budget import START
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from tests.conftest import Connect, migrate
from tests.jobs import HOLDER, SERVER, Conn, claimed, insert_job, one, open_database, register_server, row_of, status_of
from tests.standby import DemotedPostgres

CLAIM = {**NO_CLAIM, **NOTHING_FINISHED, "server": SERVER, "holder": HOLDER, "lease_ttl": 600, "wanted": 1}
OURS = "SELECT name, generic_plans, custom_plans FROM pg_prepared_statements WHERE starts_with(name, 'convertq_')"
STRANGE = "it's \\ a \"quoted\" ünï %s $1 \n 'E''\\' /* -- ; 😀"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with open_database(database_url) as opened:
        yield behind_a_pooler(opened)


def behind_a_pooler(database: Database) -> Database:
    """As a session is recognised that has lost the limits it was opened with."""
    database.connection.execute("SET statement_timeout = 0")
    database.check_schema()
    assert isinstance(database.pipeline, PooledPipeline)
    return database


def another_client(database: Database) -> PooledPipeline:
    """It has got the same server connection."""
    pipeline = Database(database.connection, database.schema).pipeline
    assert isinstance(pipeline, PooledPipeline)
    return pipeline


def shares_plans(database: Database) -> bool:
    assert isinstance(database.pipeline, PooledPipeline)
    return database.pipeline.shares_plans


def completion_of(job: ClaimedJob, location: str = "x") -> Statement:
    return "complete_and_claim", {**NO_CLAIM, **completion_parameters([FinishedJob(job, Completed(location))], 30)}


def test_a_statement_is_planned_once_on_a_server_connection_for_all_its_clients(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    for client in (database.pipeline, another_client(database), another_client(database)):
        for _ in range(3):
            assert client.run(("lock_lease", job.fence)) == [[{"id": job.id}]]
    [prepared] = database.connection.execute(OURS).fetchall()
    assert prepared["name"].startswith("convertq_lock_lease_")
    assert (prepared["generic_plans"], prepared["custom_plans"]) == (9, 0)


def test_the_settings_of_a_run_end_with_its_transaction(conn: Conn, database: Database) -> None:
    database.connection.execute("SET idle_in_transaction_session_timeout = 0")
    database.pipeline.run(BEGIN, ("lock_lease", claimed(conn).fence))
    names = ("idle_in_transaction_session_timeout", "enable_sort", "plan_cache_mode", "transaction_isolation")
    shown = "SELECT " + ", ".join(f"current_setting('{name}') AS {name}" for name in names)
    within = database.connection.execute(shown.encode()).fetchone()
    database.pipeline.run(COMMIT)
    after = database.connection.execute(shown.encode()).fetchone()
    assert within == dict(zip(names, ("15s", "off", "force_generic_plan", "read committed"), strict=True))
    assert after == dict(zip(names, ("0", "on", "auto", "read committed"), strict=True))


def test_statements_of_different_texts_have_different_names(conn: Conn, database: Database) -> None:
    """Clients of another version or of another schema share the server connection too."""
    conn.execute("CREATE SCHEMA other")
    conn.execute("CREATE TABLE other.jobs AS SELECT * FROM jobs LIMIT 0")
    job = claimed(conn)
    assert database.pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]
    assert Database(database.connection, "other").pipeline.run(("lock_lease", job.fence)) == [[]]
    assert len(database.connection.execute(OURS).fetchall()) == 2


def test_several_statements_that_are_all_missing_are_prepared_in_one_run(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    extended = ("extend_lease", {**job.fence, "lease_ttl": 9})
    for _ in range(2):
        rows = database.pipeline.run(BEGIN, ("lock_lease", job.fence), extended, COMMIT)
        assert rows == [[], [{"id": job.id}], [{"id": job.id}], []]
    assert len(database.connection.execute(OURS).fetchall()) == 2


def test_every_value_arrives_as_it_was_given(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    given = {
        **job.fence, "delay_ms": 0, "error_code": "GW_5XX", "error_message": STRANGE, "gateway_ok": False,
        "gateway_status": None, "gateway_ms": 7, "gateway": None, "duration_ms": None,
    }  # fmt: skip
    [[row]] = database.pipeline.run(("schedule_retry", given))
    assert row["retry_after"] == row_of(conn, job)["retry_after"]
    meta = one(conn, "SELECT meta FROM job_events WHERE meta ? 'error_message'")["meta"]
    assert (meta["error_message"], meta["gateway_ms"], meta["gateway_ok"]) == (STRANGE, 7, False)
    assert "gateway_status" not in meta


def test_a_document_an_array_and_a_time_arrive_as_they_were_given(conn: Conn, database: Database) -> None:
    register_server(conn)
    insert_job(conn, mapping=STRANGE, priority=9)
    wanted = insert_job(conn, mapping="other", created_at="2026-03-29 02:30:00.123456+00")
    excluded = {"excluded": array_literal([STRANGE, "NULL", "", "{}"])}
    [[row]] = database.pipeline.run(("complete_and_claim", {**CLAIM, **excluded}))
    assert (row["id"], row["created_at"]) == (wanted, "2026-03-29 02:30:00.123456+00")
    job = claimed(conn, mapping="third")
    [[row]] = database.pipeline.run(completion_of(job, location=STRANGE))
    assert row["completed"] == [job.id]
    assert row_of(conn, job)["result_path"] == STRANGE


def test_a_position_in_the_index_arrives_as_it_was_given(conn: Conn, database: Database) -> None:
    register_server(conn)
    insert_job(conn, created_at="2026-03-29 02:30:00+00")
    later = insert_job(conn, created_at="2026-03-29 02:31:00+00")
    position = START._replace(priority=0, turn=0, created_at="2026-03-29 02:30:30+00", id=UUID(int=0))
    [[row]] = database.pipeline.run(("complete_and_claim", {**CLAIM, **position.parameters}))
    assert row["id"] == later


def test_a_value_that_no_text_can_hold_is_refused_before_it_is_sent(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    with pytest.raises(psycopg.DataError, match="NUL"):
        database.pipeline.run(BEGIN, ("lock_lease", {**job.fence, "holder": "a\0b"}))
    assert database.pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]


def test_a_statement_that_fails_is_told_by_its_sqlstate_and_leaves_the_connection_usable(
    conn: Conn, connect: Connect, database: Database
) -> None:
    job, other = claimed(conn), connect()
    database.connection.execute("SET statement_timeout = '50ms'")
    with other.transaction():
        other.execute("SELECT FROM jobs FOR UPDATE")
        for _ in range(2):  # prepared by the first
            with pytest.raises(psycopg.errors.QueryCanceled) as failed:
                database.pipeline.run(BEGIN, ("lock_lease", job.fence))
            assert failed.value.diag.message_primary == "canceling statement due to statement timeout"
            assert database.connection.info.transaction_status == TransactionStatus.IDLE
    assert database.pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]


def test_nothing_of_a_failed_run_is_kept(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    broken = {**job.fence, "lease_ttl": "many"}
    for _ in range(2):  # prepared by the first
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="many"):
            database.pipeline.run(BEGIN, completion_of(job), ("extend_lease", broken), COMMIT)
        assert database.connection.info.transaction_status == TransactionStatus.IDLE
        assert (row_of(conn, job)["status"], row_of(conn, job)["leased_by"]) == ("processing", HOLDER)
    assert shares_plans(database)


def test_a_transaction_holds_its_locks_between_its_runs(conn: Conn, connect: Connect, database: Database) -> None:
    job = claimed(conn)
    with database.pipelined_transaction(completion_of(job)) as [[row]]:
        assert row["completed"] == [job.id]
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connect().execute("SELECT FROM jobs FOR UPDATE NOWAIT")
        assert status_of(conn, job) == "processing"
    assert status_of(conn, job) == "complete"
    assert database.connection.info.transaction_status == TransactionStatus.IDLE


def test_a_missing_statement_does_not_abort_a_transaction_that_is_open(conn: Conn, database: Database) -> None:
    """What goes with the COMMIT was never prepared on this server connection."""
    job, other = claimed(conn), claimed(conn)
    with database.pipelined_transaction(completion_of(job), at_commit=[("lock_lease", other.fence)]):
        database.connection.execute("DEALLOCATE ALL")
    assert status_of(conn, job) == "complete"


def test_an_error_of_the_caller_rolls_the_transaction_back(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    with pytest.raises(ZeroDivisionError), database.pipelined_transaction(completion_of(job)):
        raise ZeroDivisionError
    assert status_of(conn, job) == "processing"
    assert database.connection.info.transaction_status == TransactionStatus.IDLE


def test_a_pooler_that_resets_its_server_connections_gets_no_prepared_statements(
    conn: Conn, database: Database
) -> None:
    job = claimed(conn)
    for _ in range(LOSSES_OF_A_RESETTING_POOLER + 1):
        assert shares_plans(database)
        assert database.pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]
        database.connection.execute("DISCARD ALL")
    assert not shares_plans(database)
    with database.pipelined_transaction(completion_of(job)) as [[row]]:
        assert row["completed"] == [job.id]
    assert status_of(conn, job) == "complete"
    assert database.connection.execute(OURS).fetchall() == []


def test_a_statement_that_is_lost_now_and_then_is_prepared_again(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    for _ in range(2 * LOSSES_OF_A_RESETTING_POOLER):
        for _ in range(2):
            assert database.pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]
        database.connection.execute("DEALLOCATE ALL")
    assert shares_plans(database)


def test_a_statement_that_another_client_has_prepared_meanwhile_is_executed(
    conn: Conn, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a pooler that gives the server connection of a failed transaction to another client."""
    job, pipeline, other = claimed(conn), database.pipeline, another_client(database)
    assert isinstance(pipeline, PooledPipeline)
    send, sent = pipeline._send, list[str]()

    def send_after_the_other(commands: Sequence[Command]) -> list[PGresult]:
        sent.append("message")
        if len(sent) == 2:
            database.connection.rollback()
            other.run(("lock_lease", job.fence))
        return send(commands)

    monkeypatch.setattr(pipeline, "_send", send_after_the_other)
    assert pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]
    assert len(sent) == 3


def test_a_migration_that_changes_a_column_reaches_what_was_prepared_before_it(conn: Conn, database: Database) -> None:
    register_server(conn)
    clients = [database.pipeline, another_client(database)]
    for client in clients:
        insert_job(conn, pretty=True)
        [[row]] = client.run(("complete_and_claim", CLAIM))
        assert row["pretty"] is True
    conn.execute("ALTER TABLE jobs ALTER pretty DROP DEFAULT, ALTER pretty TYPE text")
    for client in clients:
        insert_job(conn, pretty="very")
        [[row]] = client.run(("complete_and_claim", CLAIM))
        assert row["pretty"] == "very"
    assert len(database.connection.execute(OURS).fetchall()) == 1


def test_a_statement_that_cannot_be_prepared_is_prepared_later(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    conn.execute("ALTER TABLE jobs RENAME TO jobs_elsewhere")
    with pytest.raises(psycopg.errors.UndefinedTable):
        database.pipeline.run(BEGIN, ("lock_lease", job.fence))
    assert database.connection.info.transaction_status == TransactionStatus.IDLE
    conn.execute("ALTER TABLE jobs_elsewhere RENAME TO jobs")
    assert database.pipeline.run(("lock_lease", job.fence)) == [[{"id": job.id}]]


def test_a_run_waits_no_longer_than_its_answer_timeout(conn: Conn, connect: Connect, database: Database) -> None:
    job = claimed(conn)
    database.pipeline.run(("lock_lease", job.fence))
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM jobs FOR UPDATE")
        database.connection.answer_timeout_seconds = 0.3
        with pytest.raises(psycopg.OperationalError, match="no answer from the database"):
            database.pipeline.run(BEGIN, ("lock_lease", job.fence))


def test_a_connection_that_is_cut_is_an_error_and_not_a_hang(conn: Conn, database: Database) -> None:
    job = claimed(conn)
    database.pipeline.run(BEGIN, completion_of(job))
    conn.execute("SELECT pg_terminate_backend(%s, 5000)", [database.connection.info.backend_pid])
    with pytest.raises(psycopg.OperationalError) as lost:
        database.pipeline.run(COMMIT)
    assert server_is_gone(lost.value)
    assert status_of(conn, job) == "processing"


@pytest.mark.parametrize("prepares", [True, False])
def test_a_standby_is_told_as_a_server_that_is_read_only(prepares: bool) -> None:
    with DemotedPostgres() as server:
        migrate(server.url())
        server.demote()
        with open_database(server.url()) as opened:
            database = behind_a_pooler(opened)
            database.connection.prepares_behind_pooler = prepares
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as refused:
                database.pipeline.run(
                    BEGIN, ("lock_lease", {"id": UUID(int=1), "holder": HOLDER, "attempt": 1, "run": 1})
                )
            assert server_is_gone(refused.value)
            assert database.connection.info.transaction_status == TransactionStatus.IDLE
