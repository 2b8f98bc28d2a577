"""schedule_retry: back in the queue, not before its time, with the reason on record."""

from __future__ import annotations

import pytest
from convertq.queue.errors import Code, Failure

from tests.jobs import Conn, claimed, everything, last_event, lose_lease, one, retry_later, row_of, try_claim


def test_it_waits_for_its_time(conn: Conn) -> None:
    job = claimed(conn)
    assert retry_later(conn, job, delay_ms=60_000)
    row = row_of(conn, job)
    assert (row["status"], row["leased_by"], row["lease_expires_at"], row["error_code"]) == (
        "queued",
        None,
        None,
        None,
    )
    assert one(
        conn,
        "SELECT retry_after BETWEEN now() + interval '30 s' AND now() + interval '60 s' AS kept FROM jobs",
    )["kept"]
    assert try_claim(conn).job is None


def test_without_a_delay_it_comes_back_at_once_with_its_attempt_counted(conn: Conn) -> None:
    job = claimed(conn)
    retry_later(conn, job, delay_ms=0)
    again = try_claim(conn).job
    assert again is not None
    assert (again.id, again.attempt) == (job.id, 2)


def test_a_day_is_not_too_long(conn: Conn) -> None:
    job = claimed(conn)
    assert retry_later(conn, job, delay_ms=24 * 3600 * 1000)


def test_its_event_keeps_the_error(conn: Conn) -> None:
    job = claimed(conn)
    failure = Failure(Code.GW_TIMEOUT, "too slow", called=True, gateway_status=504, gateway_ms=9)
    retry_later(conn, job, failure=failure)
    event = last_event(conn, job)
    assert event["event_type"] == "retry"
    expected = {
        "worker": job.holder, "attempt": 1, "error_code": "GW_TIMEOUT", "error_message": "too slow",
        "gateway_ok": False,
        "gateway_status": 504, "gateway_ms": 9,
    }  # fmt: skip
    assert {name: event["meta"][name] for name in expected} == expected
    assert event["meta"]["retry_after"] == one(conn, "SELECT to_jsonb(retry_after) AS at FROM jobs")["at"]


@pytest.mark.parametrize(("called", "counts"), [(True, True), (False, False)])
def test_only_a_call_counts_for_the_breaker(conn: Conn, called: bool, counts: bool) -> None:
    job = claimed(conn)
    retry_later(conn, job, failure=Failure(Code.IO_ERROR, "x", called=called))
    assert ("gateway_ok" in last_event(conn, job)["meta"]) is counts


def test_a_lost_lease_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job)
    before = everything(conn)
    assert not retry_later(conn, job)
    assert everything(conn) == before
