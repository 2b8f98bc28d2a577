"""fail_job: the end without a result, with its code, by its holder alone."""

from __future__ import annotations

import pytest
from convertq.queue.errors import Code, Failure

from tests.jobs import Conn, claimed, everything, fail, last_event, lose_lease, row_of


@pytest.mark.parametrize("dead_letter", [True, False])
def test_it_says_what_happened(conn: Conn, dead_letter: bool) -> None:
    job = claimed(conn)
    assert fail(conn, job, Failure(Code.GW_4XX, "no such mapping"), dead_letter=dead_letter)
    row = row_of(conn, job)
    assert (row["status"], row["error_code"], row["error_message"]) == ("failed", "GW_4XX", "no such mapping")
    assert (row["dead_letter"], row["leased_by"], row["lease_expires_at"]) == (dead_letter, None, None)
    assert row["failed_at"] is not None
    assert row["attempt_count"] == 1


def test_its_event_says_what_is_known(conn: Conn) -> None:
    job = claimed(conn)
    fail(conn, job, Failure(Code.GW_4XX, "no", called=True, gateway_status=415, gateway_ms=3))
    event = last_event(conn, job)
    assert event["event_type"] == "failed"
    assert event["meta"].pop("duration_ms") >= 0
    assert event["meta"] == {
        "worker": job.holder, "attempt": 1, "error_code": "GW_4XX", "error_message": "no", "gateway_ok": True,
        "gateway_status": 415, "gateway_ms": 3,
    }  # fmt: skip


def test_a_lost_lease_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job)
    before = everything(conn)
    assert not fail(conn, job)
    assert everything(conn) == before
