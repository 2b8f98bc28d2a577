"""Owns the promises of reclaim_jobs and bury_servers: what is lost comes back, and what is alive is left alone."""

from __future__ import annotations

import pytest

from tests.conftest import Connect
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    claim,
    claimed,
    complete,
    events_of,
    everything,
    expire_lease,
    insert_job,
    last_event,
    one,
    queue,
    register_server,
    row_of,
    run,
)


def server_status(conn: Conn, server: str = SERVER) -> str:
    return str(one(conn, "SELECT status FROM servers WHERE id = %s", server)["status"])


def silence(conn: Conn, seconds: int) -> None:
    conn.execute("UPDATE servers SET last_heartbeat_at = now() - make_interval(secs => %s)", [seconds])


def test_an_expired_lease_goes_back_without_delay(conn: Conn) -> None:
    job = claimed(conn)
    expire_lease(conn, job)
    [back] = queue(conn).reclaim_jobs()
    assert back == {
        "id": job.id,
        "attempt": 1,
        "holder": HOLDER,
        "status": "queued",
        "reason": "lease expired",
        "error_code": None,
        "error_message": None,
    }
    row = row_of(conn, job)
    assert (row["status"], row["attempt_count"], row["retry_after"], row["leased_by"]) == (
        "queued",
        1,
        None,
        None,
    )
    assert events_of(conn, job)[-1] == "reclaimed"
    assert last_event(conn, job)["meta"] == {"worker": HOLDER, "attempt": 1, "reason": "lease expired"}
    assert claim(conn).attempt == 2


def test_a_lease_that_lasts_is_left_alone(conn: Conn) -> None:
    claimed(conn)
    before = everything(conn)
    assert queue(conn).reclaim_jobs() == []
    assert everything(conn) == before


@pytest.mark.parametrize("status", ["stopped", "dead"])
def test_the_jobs_of_a_server_that_is_gone_come_back_before_their_lease_ends(conn: Conn, status: str) -> None:
    job = claimed(conn)
    conn.execute("UPDATE servers SET status = %s", [status])
    [back] = queue(conn).reclaim_jobs()
    assert (back["id"], back["reason"]) == (job.id, f"server {status}")


@pytest.mark.parametrize("status", ["active", "draining"])
def test_the_jobs_of_a_server_that_is_there_stay(conn: Conn, status: str) -> None:
    claimed(conn)
    conn.execute("UPDATE servers SET status = %s", [status])
    assert queue(conn).reclaim_jobs() == []


@pytest.mark.parametrize("status", ["active", "draining"])
def test_a_silent_server_is_dead_and_its_jobs_come_back_in_the_same_pass(conn: Conn, status: str) -> None:
    job = claimed(conn)
    conn.execute("UPDATE servers SET status = %s", [status])
    silence(conn, 41)
    assert [row["id"] for row in queue(conn, WORKER_HEARTBEAT_TIMEOUT_SEC=40).reclaim_jobs()] == [job.id]
    assert server_status(conn) == "dead"
    assert one(conn, "SELECT stopped_at FROM servers")["stopped_at"] is not None


def test_a_server_that_was_heard_in_time_lives(conn: Conn) -> None:
    claimed(conn)
    silence(conn, 30)
    assert queue(conn, WORKER_HEARTBEAT_TIMEOUT_SEC=40).reclaim_jobs() == []
    assert server_status(conn) == "active"


def test_a_server_that_stopped_in_order_stays_stopped(conn: Conn) -> None:
    register_server(conn, status="stopped")
    silence(conn, 9999)
    assert run(conn, "bury_servers", heartbeat_timeout=40) == []
    assert server_status(conn) == "stopped"


@pytest.mark.parametrize("holder", ["stranger", "some:other:program/1", "no-slash", "a/b/c", ""])
def test_a_holder_that_is_not_registered_is_judged_by_its_lease_alone(conn: Conn, holder: str) -> None:
    alive = insert_job(conn, "processing", leased_by=holder)
    lost = insert_job(conn, "processing", leased_by=holder, lease_expires_at="yesterday")
    assert [row["id"] for row in queue(conn).reclaim_jobs()] == [lost]
    assert row_of(conn, alive)["status"] == "processing"


def test_a_server_whose_name_begins_alike_is_another(conn: Conn) -> None:
    claimed(conn, "host:1:aaaab/1")
    register_server(conn, "host:1:aaaa", status="dead")
    assert queue(conn).reclaim_jobs() == []


def test_a_job_that_used_up_its_attempts_is_given_up(conn: Conn) -> None:
    job = claimed(conn, attempt_count=2)
    expire_lease(conn, job)
    [back] = queue(conn, RETRY_MAX_ATTEMPTS=3).reclaim_jobs()
    row = row_of(conn, job)
    assert back["status"] == row["status"] == "failed"
    assert (row["error_code"], row["dead_letter"], row["attempt_count"]) == ("UNKNOWN", True, 3)
    assert row["error_message"] == "the worker was lost during each of 3 attempts"
    assert row["failed_at"] is not None
    assert events_of(conn, job)[-1] == "failed"
    assert last_event(conn, job)["meta"]["reason"] == "lease expired"


def test_one_attempt_before_the_last_goes_back(conn: Conn) -> None:
    job = claimed(conn, attempt_count=1)
    expire_lease(conn, job)
    assert queue(conn, RETRY_MAX_ATTEMPTS=3).reclaim_jobs()[0]["status"] == "queued"


def test_at_most_a_hundred_at_a_time_and_all_in_the_end(conn: Conn) -> None:
    for _ in range(101):
        insert_job(conn, "processing", lease_expires_at="yesterday")
    assert len(queue(conn).reclaim_jobs()) == 100
    assert len(queue(conn).reclaim_jobs()) == 1
    assert one(conn, "SELECT count(*) FROM job_events WHERE event_type = 'reclaimed'")["count"] == 101


def test_a_job_extended_meanwhile_is_not_taken(conn: Conn, connect: Connect) -> None:
    job = claimed(conn)
    expire_lease(conn, job)
    other = connect()
    with conn.transaction():
        assert queue(conn).extend_lease(job)
        assert queue(other).reclaim_jobs() == []
    assert queue(other).reclaim_jobs() == []
    assert complete(conn, job)


def test_a_second_reclaim_finds_nothing(conn: Conn) -> None:
    expire_lease(conn, claimed(conn))
    assert len(queue(conn).reclaim_jobs()) == 1
    assert queue(conn).reclaim_jobs() == []


def test_finished_jobs_are_never_reclaimed(conn: Conn) -> None:
    for status in ("uploaded", "queued", "complete", "failed"):
        insert_job(conn, status)
    register_server(conn, status="dead")
    before = everything(conn)
    assert queue(conn).reclaim_jobs() == []
    assert everything(conn) == before
