"""promote_due_jobs: retries enter the claim's index when they are due."""

from __future__ import annotations

from tests.conftest import Connect
from tests.jobs import (
    Conn,
    cursor,
    events_of,
    insert_job,
    row_of,
    try_claim,
)


def test_only_what_is_due_is_let_in(conn: Conn) -> None:
    due, later = insert_job(conn, retry_after="yesterday"), insert_job(conn, retry_after="tomorrow")
    assert cursor(conn).promote_due_jobs() == 1
    assert row_of(conn, due)["retry_after"] is None
    assert row_of(conn, later)["retry_after"] is not None


def test_it_is_no_transition_and_leaves_no_event(conn: Conn) -> None:
    due = insert_job(conn, retry_after="yesterday")
    cursor(conn).promote_due_jobs()
    assert events_of(conn, due) == ["created", "queued"]


def test_a_time_left_over_in_another_state_is_not_touched(conn: Conn) -> None:
    failed = insert_job(conn, "failed", retry_after="yesterday")
    assert cursor(conn).promote_due_jobs() == 0
    assert row_of(conn, failed)["retry_after"] is not None


def test_the_longest_due_come_first_and_a_hundred_at_a_time(conn: Conn) -> None:
    conn.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, retry_after) SELECT 1, repeat('a', 64), 'queued', "
        "now() - interval '1 h' + number * interval '1 ms' FROM generate_series(1, 101) AS number"
    )
    last = insert_job(conn, retry_after="yesterday")
    assert cursor(conn).promote_due_jobs() == 100
    assert row_of(conn, last)["retry_after"] is None
    assert cursor(conn).promote_due_jobs() == 2


def test_a_locked_one_is_passed_over(conn: Conn, connect: Connect) -> None:
    first, second = insert_job(conn, retry_after="yesterday"), insert_job(conn, retry_after="yesterday")
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [first])
        assert cursor(conn).promote_due_jobs() == 1
    assert row_of(conn, second)["retry_after"] is None
    assert row_of(conn, first)["retry_after"] is not None


def test_a_claim_does_not_wait_for_one_that_somebody_has_locked(conn: Conn, connect: Connect) -> None:
    first = insert_job(conn, retry_after="yesterday")
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [first])
        assert try_claim(conn).job is None
    job = try_claim(conn).job
    assert job is not None
    assert job.id == first
