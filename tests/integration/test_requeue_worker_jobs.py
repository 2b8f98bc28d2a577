"""requeue_worker_jobs: what a dead worker leased is queued at once, while attempts are left."""

from __future__ import annotations

from uuid import UUID

from tests.conftest import Connect
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    breaker,
    claim,
    claimed,
    everything,
    insert_job,
    last_event,
    lose_lease,
    queue,
    register_server,
    row_of,
    set_breaker,
    status_of,
)


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


# -- a claim that a living worker does not know of --


def give_back_unknown(conn: Conn, *known: UUID) -> list[UUID]:
    rows = queue(conn).requeue_worker_jobs(HOLDER, counted=False, reason="the claim was lost", kept=known)
    return [row["id"] for row in rows]


def test_the_job_that_the_worker_knows_of_stays_with_it(conn: Conn) -> None:
    known, lost, other = claimed(conn), claimed(conn), claimed(conn)
    assert give_back_unknown(conn, known.id, other.id) == [lost.id]
    assert [status_of(conn, job) for job in (known, lost, other)] == ["processing", "queued", "processing"]


# -- a worker that died with jobs that it had claimed ahead --


def test_of_a_dead_workers_jobs_only_the_attempts_that_had_begun_count(conn: Conn) -> None:
    begun, ahead = claimed(conn), claimed(conn)
    queue(conn).requeue_worker_jobs(HOLDER, begun=[begun.id], reason="worker died")
    assert [row_of(conn, job)["attempt_count"] for job in (begun, ahead)] == [1, 0]
    assert {status_of(conn, job) for job in (begun, ahead)} == {"queued"}
    reasons = [last_event(conn, job)["meta"]["reason"] for job in (begun, ahead)]
    assert reasons == ["worker died", "worker died, not begun"]


def test_a_job_that_was_not_begun_is_never_given_up_for_its_workers_death(conn: Conn) -> None:
    begun, ahead = claimed(conn, attempt_count=2), claimed(conn, attempt_count=2)
    queue(conn, RETRY_MAX_ATTEMPTS=3).requeue_worker_jobs(HOLDER, begun=[begun.id], reason="worker died")
    assert [status_of(conn, job) for job in (begun, ahead)] == ["failed", "queued"]


def test_an_abandoned_claim_that_commits_after_the_worker_looked_is_found_later_and_uncounted(
    conn: Conn, connect: Connect
) -> None:
    register_server(conn)
    job_id, abandoned = insert_job(conn), connect()
    with abandoned.transaction():
        assert claim(abandoned).id == job_id
        assert give_back_unknown(conn) == []
    assert give_back_unknown(conn) == [job_id]
    assert (row_of(conn, job_id)["attempt_count"], last_event(conn, job_id)["meta"]) == (
        0, {"worker": HOLDER, "attempt": 1, "reason": "the claim was lost"},
    )  # fmt: skip


def test_an_abandoned_trial_that_commits_late_opens_the_breaker_again(conn: Conn, connect: Connect) -> None:
    register_server(conn)
    job_id, abandoned = insert_job(conn), connect()
    set_breaker(conn, "half_open", probe_by=HOLDER)
    with abandoned.transaction():
        assert claim(abandoned).is_trial
        assert give_back_unknown(conn) == []
    assert breaker(conn)["trial_job"] == job_id
    assert give_back_unknown(conn) == [job_id]
    assert (breaker(conn)["state"], breaker(conn)["trial_job"]) == ("open", None)
