"""complete_job: done once, by its holder, with everything that belongs to the end."""

from __future__ import annotations

import pytest

from tests.jobs import Conn, claimed, complete, everything, last_event, lose_lease, one, queue, row_of


def test_it_ends_the_lease_and_says_where_the_result_is(conn: Conn) -> None:
    job = claimed(conn)
    assert complete(conn, job)
    row = row_of(conn, job)
    assert (row["status"], row["result_path"], row["leased_by"], row["lease_expires_at"], row["retry_after"]) == (
        "complete", "/results/x.xml", None, None, None,
    )  # fmt: skip
    assert row["completed_at"] is not None
    assert row["attempt_count"] == 1


@pytest.mark.parametrize(("days", "kept"), [(30, "30 days"), (1, "1 day"), (0, None)])
def test_the_result_expires_after_its_days_or_never(conn: Conn, days: int, kept: str | None) -> None:
    job = claimed(conn)
    assert complete(conn, job, retention_days=days)
    found = one(conn, "SELECT expires_at - completed_at = %s::interval AS kept FROM jobs", kept)
    assert found["kept"] is (None if kept is None else True)


def test_its_event_says_what_is_known(conn: Conn) -> None:
    job = claimed(conn)
    complete(conn, job, gateway_status=200, gateway_ms=12)
    event = last_event(conn, job)
    assert event["event_type"] == "complete"
    assert event["meta"].pop("duration_ms") >= 0
    assert event["meta"] == {"worker": job.holder, "attempt": 1, "gateway_status": 200, "gateway_ms": 12}


def test_a_job_finished_from_a_leftover_made_no_call(conn: Conn) -> None:
    job = claimed(conn)
    complete(conn, job)
    assert "gateway_ok" not in last_event(conn, job)["meta"]


def test_a_lost_lease_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job)
    before = everything(conn)
    assert not complete(conn, job)
    assert everything(conn) == before


def test_the_same_holder_with_an_earlier_attempt_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job, to=job.holder)
    before = everything(conn)
    assert not complete(conn, job)
    assert everything(conn) == before


def test_it_is_done_once(conn: Conn) -> None:
    job = claimed(conn)
    assert complete(conn, job)
    before = everything(conn)
    assert not complete(conn, job)
    assert everything(conn) == before


def test_a_commit_that_was_answered_by_silence_is_found_again(conn: Conn) -> None:
    job = claimed(conn)
    assert not queue(conn).was_completed(job)
    complete(conn, job)
    assert queue(conn).was_completed(job)


def test_anothers_completion_is_not_mine(conn: Conn) -> None:
    job = claimed(conn)
    complete(conn, lose_lease(conn, job))
    assert not queue(conn).was_completed(job)
