"""A program that knows only the table: events, wake-ups and times come by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from convertq.queue.database import connection as db
from convertq.queue.database import migrations
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url

from tests.conftest import Connect
from tests.jobs import Conn, claimed, events_of, insert_job, last_event, one, row_of, run, set_status
from tests.waiting import WAIT_SECONDS

LONG = "a_schema_whose_name_is_as_long_as_a_name_in_postgresql_can_be__"


def notices(conn: Conn) -> int:
    """How many have arrived by now; a marker sent after them says when to stop."""
    marker = f"marker_{conn.info.backend_pid}"
    conn.execute(f"LISTEN {marker}".encode())
    conn.execute(f"NOTIFY {marker}".encode())
    for count, notice in enumerate(conn.notifies(timeout=WAIT_SECONDS)):
        if notice.channel == marker:
            return count
        assert notice.payload == ""
    raise AssertionError("the marker did not arrive")


@pytest.fixture
def listener(connect: Connect) -> Conn:
    listening = connect()
    listening.execute("SELECT start_waiting()")
    return listening


def test_a_plain_insert_has_its_events(conn: Conn) -> None:
    assert events_of(conn, insert_job(conn, "queued")) == ["created", "queued"]
    assert events_of(conn, insert_job(conn, "uploaded")) == ["created"]
    assert events_of(conn, insert_job(conn, "failed")) == ["created", "failed"]


def test_a_plain_insert_is_queued_from_now(conn: Conn) -> None:
    assert row_of(conn, insert_job(conn, "queued"))["queued_at"] is not None
    assert row_of(conn, insert_job(conn, "uploaded"))["queued_at"] is None


def test_a_plain_update_gets_one_event_with_what_is_known(conn: Conn) -> None:
    job = insert_job(conn, "queued")
    conn.execute(
        "UPDATE jobs SET status = 'failed', error_code = 'FORBIDDEN', error_message = 'no' WHERE id = %s",
        [job],
    )
    assert events_of(conn, job) == ["created", "queued", "failed"]
    meta = last_event(conn, job)["meta"]
    assert (meta["error_code"], meta["error_message"]) == ("FORBIDDEN", "no")


def test_a_lease_taken_by_another_program_is_recorded_with_its_name(conn: Conn) -> None:
    job = insert_job(conn, "queued")
    set_status(conn, job, "processing")
    assert last_event(conn, job)["meta"]["worker"] == "host:1:aaaa/1"


def test_many_changes_in_one_transaction_have_one_event_each(conn: Conn) -> None:
    with conn.transaction():
        job = insert_job(conn, "uploaded")
        for status in ("queued", "processing", "queued", "processing", "complete"):
            set_status(conn, job, status)
    assert events_of(conn, job) == ["created", "queued", "processing", "queued", "processing", "complete"]


def test_many_rows_in_one_statement_have_one_event_each(conn: Conn) -> None:
    jobs = [insert_job(conn, "uploaded") for _ in range(5)]
    conn.execute("UPDATE jobs SET status = 'queued'")
    assert [events_of(conn, job) for job in jobs] == [["created", "queued"]] * 5


def test_a_statement_that_brings_its_event_gets_no_second_one(conn: Conn) -> None:
    job = claimed(conn)
    assert events_of(conn, job) == ["created", "queued", "processing"]


def test_our_statement_in_the_same_transaction_as_a_plain_one_has_one_event(conn: Conn) -> None:
    with conn.transaction():
        job = insert_job(conn, "failed")
        run(conn, "retry_jobs", ids=[job])
        set_status(conn, job, "failed")
        run(conn, "retry_jobs", ids=[job])
    assert events_of(conn, job) == ["created", "failed", "retry", "failed", "retry"]


def test_a_savepoint_rolled_back_takes_its_event_along(conn: Conn) -> None:
    job = insert_job(conn, "uploaded")
    with conn.transaction():
        with conn.transaction() as inner:
            set_status(conn, job, "queued")
            raise psycopg.Rollback(inner)
        set_status(conn, job, "failed")
    assert events_of(conn, job) == ["created", "failed"]


def test_events_cannot_be_changed(conn: Conn) -> None:
    insert_job(conn)
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only: update is not allowed"):
        conn.execute("UPDATE job_events SET at = now()")


def test_events_can_be_deleted_by_cleanup_alone(conn: Conn) -> None:
    insert_job(conn)
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only") as refused:
        conn.execute("DELETE FROM job_events")
    assert "convertq cleanup" in (refused.value.diag.message_hint or "")
    with conn.transaction():
        conn.execute("SET LOCAL convertq.cleanup = 'on'")
        conn.execute("DELETE FROM job_events")
    insert_job(conn)
    with pytest.raises(psycopg.errors.RestrictViolation):
        conn.execute("DELETE FROM job_events")


def test_events_cannot_be_truncated_away(conn: Conn) -> None:
    insert_job(conn)
    with pytest.raises(psycopg.Error):
        conn.execute("TRUNCATE job_events")


def test_updated_at_moves_at_every_change_and_cannot_be_held(conn: Conn) -> None:
    job = insert_job(conn, updated_at="2001-01-01")
    seen = [row_of(conn, job)["updated_at"]]
    with conn.transaction():  # now() stands still in here
        for change in (
            "priority = 1",
            "priority = 1",
            "updated_at = '2001-01-01'",
            "status = 'failed', error_code = 'X'",
        ):
            conn.execute(f"UPDATE jobs SET {change} WHERE id = %s".encode(), [job])
            seen.append(row_of(conn, job)["updated_at"])
    assert seen == sorted(set(seen))
    assert seen[0].year > 2001


def test_an_insert_wakes_the_workers_once_per_transaction(conn: Conn, listener: Conn) -> None:
    insert_job(conn)
    assert notices(listener) == 1
    with conn.transaction():
        for _ in range(5):
            insert_job(conn)
    assert notices(listener) == 1


@pytest.mark.parametrize("status", ["uploaded", "failed", "complete", "processing"])
def test_whatever_becomes_queued_wakes_the_workers(conn: Conn, listener: Conn, status: str) -> None:
    job = insert_job(conn, status)
    assert notices(listener) == 0
    set_status(conn, job, "queued")
    assert notices(listener) == 1


def test_other_changes_wake_nobody(conn: Conn, listener: Conn) -> None:
    job = insert_job(conn)
    assert notices(listener) == 1
    conn.execute("UPDATE jobs SET priority = 3 WHERE id = %s", [job])
    set_status(conn, job, "processing")
    set_status(conn, job, "complete")
    assert notices(listener) == 0


def test_what_is_rolled_back_wakes_nobody(conn: Conn, listener: Conn) -> None:
    with conn.transaction() as undone:
        insert_job(conn)
        raise psycopg.Rollback(undone)
    assert notices(listener) == 0


# -- who is notified --


def test_nobody_is_notified_while_nobody_waits(conn: Conn, connect: Connect) -> None:
    listener = connect()
    listener.execute("LISTEN convertq_public_1")
    insert_job(conn)
    assert notices(listener) == 0


def test_one_of_those_who_wait_is_notified(conn: Conn, connect: Connect) -> None:
    waiting = [connect() for _ in range(9)]
    places = [one(each, "SELECT start_waiting() AS place")["place"] for each in waiting]
    assert places == list(range(1, 10))
    for _ in range(5):
        insert_job(conn)
        assert sum(notices(each) for each in waiting) == 1


def test_one_that_waits_in_the_last_place_is_notified(conn: Conn, connect: Connect) -> None:
    for place in range(1, 64):
        conn.execute("SELECT pg_advisory_lock(waiting_key(), %s)", [place])
    last = connect()
    assert one(last, "SELECT start_waiting() AS place")["place"] == 64
    assert one(connect(), "SELECT start_waiting() AS place")["place"] is None
    conn.execute("SELECT pg_advisory_unlock_all()")
    insert_job(conn)
    assert notices(last) == 1


def test_one_that_has_left_or_ended_is_not_notified(conn: Conn, connect: Connect) -> None:
    ended, left, waits = connect(), connect(), connect()
    for each in (ended, left, waits):
        each.execute("SELECT start_waiting()")
    ended.close()
    left.execute("SELECT stop_waiting(2)")
    insert_job(conn)
    assert (notices(left), notices(waits)) == (0, 1)


def test_of_transactions_that_end_together_one_notifies(conn: Conn, connect: Connect, listener: Conn) -> None:
    """The first one is at its end, and not committed yet: NOTIFY would make the second one wait for it."""
    first = connect()
    first.execute("BEGIN")
    insert_job(first)
    first.execute("SET CONSTRAINTS ALL IMMEDIATE")
    insert_job(conn)
    assert notices(listener) == 0
    first.execute("COMMIT")
    assert notices(listener) == 1
    insert_job(conn)
    assert notices(listener) == 1


def test_a_long_transaction_does_not_keep_others_from_notifying(conn: Conn, connect: Connect, listener: Conn) -> None:
    long = connect()
    long.execute("BEGIN")
    insert_job(long)
    insert_job(conn)
    assert notices(listener) == 1
    long.execute("COMMIT")
    assert notices(listener) == 1


def test_a_transaction_of_many_jobs_holds_one_lock_more(conn: Conn, listener: Conn) -> None:
    with conn.transaction():
        for _ in range(20):
            insert_job(conn)
        conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
        held = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
        assert one(conn, held)["count"] == 1
    assert notices(listener) == 1


def test_a_notification_is_passed_on_to_another_that_waits(conn: Conn, connect: Connect, listener: Conn) -> None:
    other = connect()
    other.execute("SELECT start_waiting()")
    assert run(listener, "stop_waiting", place=1) == [{"woken": 1}]
    assert (notices(listener), notices(other)) == (0, 1)
    assert run(other, "stop_waiting", place=2) == [{"woken": 0}]


@contextmanager
def in_schema(url: str, schema: str) -> Iterator[Database]:
    parsed = parse_database_url(f"{url}&schema={schema}")
    with db.connect(parsed, "convertq:tests") as connection:
        migrations.migrate(connection, schema)
        yield Database(connection, schema)


@pytest.mark.parametrize("schema", ["tenant", "Tenant", LONG])
def test_a_schema_has_a_channel_of_its_own(database_url: str, listener: Conn, schema: str) -> None:
    with in_schema(database_url, schema) as there:
        there.run("start_waiting")
        insert: Any = f"INSERT INTO \"{schema}\".jobs (bytes, sha256, status) VALUES (1, repeat('a', 64), 'queued')"
        listener.execute(insert)  # by another session: a supervisor does not notify itself
        channel = f"convertq_{schema[:50]}_1"
        assert [notice.channel for notice in there.connection.notifies(timeout=WAIT_SECONDS, stop_after=1)] == [channel]
    assert notices(listener) == 0


def test_a_schema_has_events_of_its_own(database_url: str, conn: Conn) -> None:
    with in_schema(database_url, "Tenant") as there:
        there.connection.execute(
            "INSERT INTO \"Tenant\".jobs (bytes, sha256, status) VALUES (1, repeat('a', 64), 'queued')"
        )
        found = there.connection.execute('SELECT event_type FROM "Tenant".job_events ORDER BY id').fetchall()
    assert [row["event_type"] for row in found] == ["created", "queued"]
    assert one(conn, "SELECT count(*) FROM public.job_events")["count"] == 0


@pytest.mark.parametrize("event_first", [True, False])
def test_a_program_that_brings_its_event_in_the_same_transaction_gets_no_second_one(
    conn: Conn, event_first: bool
) -> None:
    job = insert_job(conn, "uploaded")
    change = ("UPDATE jobs SET status = 'queued' WHERE id = %s", [job])
    event = ("INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'queued', '{\"by\": \"web\"}')", [job])
    with conn.transaction():
        for statement, parameters in (event, change) if event_first else (change, event):
            conn.execute(statement, parameters)
    assert events_of(conn, job) == ["created", "queued"]


def test_every_transition_of_one_transaction_gets_its_event(conn: Conn) -> None:
    job = insert_job(conn)
    fail = "UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN' WHERE id = %s"
    again = "UPDATE jobs SET status = 'queued', error_code = NULL WHERE id = %s"
    with conn.transaction():
        for statement in (fail, again, fail):
            conn.execute(statement, [job])
    assert events_of(conn, job) == ["created", "queued", "failed", "queued", "failed"]
