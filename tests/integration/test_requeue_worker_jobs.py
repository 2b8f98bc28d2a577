"""Owns the promises of requeue_worker_jobs: what a dead worker held goes back at once, and not for ever."""

from __future__ import annotations

from tests.jobs import HOLDER, SERVER, Conn, claim, claimed, everything, last_event, lose_lease, queue, row_of


def test_its_job_goes_back_with_the_attempt_counted(conn: Conn) -> None:
    job = claimed(conn)
    [back] = queue(conn).requeue_worker_jobs(HOLDER, counted=True, reason="worker died")
    assert (back["id"], back["attempt"], back["status"]) == (job.id, 1, "queued")
    row = row_of(conn, job)
    assert (row["status"], row["attempt_count"], row["retry_after"], row["leased_by"]) == (
        "queued",
        1,
        None,
        None,
    )
    event = last_event(conn, job)
    assert (event["event_type"], event["meta"]) == (
        "requeued", {"worker": HOLDER, "attempt": 1, "reason": "worker died"},
    )  # fmt: skip
    assert claim(conn).attempt == 2


def test_a_worker_stopped_by_a_shutdown_used_no_attempt(conn: Conn) -> None:
    job = claimed(conn, attempt_count=2)
    [back] = queue(conn, RETRY_MAX_ATTEMPTS=3).requeue_worker_jobs(HOLDER, counted=False, reason="shutdown")
    assert (back["attempt"], back["status"]) == (3, "queued")
    assert row_of(conn, job)["attempt_count"] == 2


def test_a_job_that_kills_its_workers_ends_as_a_dead_letter(conn: Conn) -> None:
    job = claimed(conn, attempt_count=2)
    [back] = queue(conn, RETRY_MAX_ATTEMPTS=3).requeue_worker_jobs(HOLDER, counted=True, reason="worker died")
    row = row_of(conn, job)
    assert back["status"] == row["status"] == "failed"
    assert (row["error_code"], row["dead_letter"], row["attempt_count"]) == ("UNKNOWN", True, 3)
    assert row["error_message"] == "the worker died during each of 3 attempts"
    assert row["failed_at"] is not None
    event = last_event(conn, job)
    assert (event["event_type"], event["meta"]["error_code"]) == ("failed", "UNKNOWN")


def test_everything_that_the_worker_held_goes_back(conn: Conn) -> None:
    jobs = {claimed(conn).id for _ in range(3)}
    assert {row["id"] for row in queue(conn).requeue_worker_jobs(HOLDER, counted=True, reason="x")} == jobs


def test_the_other_workers_keep_theirs(conn: Conn) -> None:
    claimed(conn, f"{SERVER}/11")
    claimed(conn, "host:2:bbbb/1")
    before = everything(conn)
    assert queue(conn).requeue_worker_jobs(HOLDER, counted=True, reason="x") == []
    assert everything(conn) == before


def test_a_job_that_another_took_meanwhile_stays_with_it(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job)
    before = everything(conn)
    assert queue(conn).requeue_worker_jobs(HOLDER, counted=True, reason="x") == []
    assert everything(conn) == before
