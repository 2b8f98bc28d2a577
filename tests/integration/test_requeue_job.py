"""requeue_job: at shutdown a job is queued again as if the attempt had never begun."""

from __future__ import annotations

from tests.jobs import Conn, claim, claimed, everything, last_event, lose_lease, queue, row_of


def test_the_attempt_does_not_count_and_there_is_no_wait(conn: Conn) -> None:
    job = claimed(conn, attempt_count=1)
    assert job.attempt == 2
    assert queue(conn).requeue_job(job, "shutdown")
    row = row_of(conn, job)
    assert (row["status"], row["attempt_count"], row["retry_after"], row["leased_by"]) == (
        "queued",
        1,
        None,
        None,
    )


def test_its_event_says_why(conn: Conn) -> None:
    job = claimed(conn)
    queue(conn).requeue_job(job, "shutdown")
    event = last_event(conn, job)
    assert (event["event_type"], event["meta"]) == (
        "requeued", {"worker": job.holder, "attempt": 1, "reason": "shutdown"},
    )  # fmt: skip


def test_it_can_be_claimed_at_once(conn: Conn) -> None:
    job = claimed(conn)
    queue(conn).requeue_job(job, "shutdown")
    again = claim(conn, "host:2:bbbb/1")
    assert (again.id, again.attempt) == (job.id, 1)


def test_a_lost_lease_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job)
    before = everything(conn)
    assert not queue(conn).requeue_job(job, "shutdown")
    assert everything(conn) == before


def test_the_same_number_taken_again_by_another_is_not_given_back(conn: Conn) -> None:
    job = claimed(conn)
    queue(conn).requeue_job(job, "shutdown")
    other = claim(conn, "host:2:bbbb/1")
    assert other.attempt == job.attempt
    before = everything(conn)
    assert not queue(conn).requeue_job(job, "shutdown")
    assert everything(conn) == before
