"""reclaim_jobs and mark_servers_dead: what is lost comes back, and what is alive is left alone."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.conftest import Connect
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    begin,
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
    register_witness,
    row_of,
    run,
    wait_until_blocked,
)


def server_status(conn: Conn, server: str = SERVER) -> str:
    return str(one(conn, "SELECT status FROM servers WHERE id = %s", server)["status"])


def silence(conn: Conn, seconds: int, server: str = SERVER) -> None:
    change = "UPDATE servers SET last_heartbeat_at = now() - make_interval(secs => %s) WHERE id = %s"
    conn.execute(change, [seconds, server])


def mark_dead(conn: Conn, listening_since: datetime | None = None) -> list[str]:
    rows = run(conn, "mark_servers_dead", heartbeat_timeout=40, longest_gap=20, listening_since=listening_since)
    return [row["id"] for row in rows]


def beat(conn: Conn, server: str) -> None:
    assert run(conn, "heartbeat_server", server=server, concurrency=4, longest_gap=20, gateways=["default"])


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
    register_witness(conn)
    assert [row["id"] for row in queue(conn, WORKER_HEARTBEAT_TIMEOUT_SEC=40).reclaim_jobs()] == [job.id]
    assert server_status(conn) == "dead"
    assert one(conn, "SELECT stopped_at FROM servers WHERE id = %s", SERVER)["stopped_at"] is not None


def test_a_server_that_was_heard_in_time_lives(conn: Conn) -> None:
    claimed(conn)
    register_witness(conn)
    silence(conn, 30)
    assert queue(conn, WORKER_HEARTBEAT_TIMEOUT_SEC=40).reclaim_jobs() == []
    assert server_status(conn) == "active"


def test_a_server_that_stopped_in_order_stays_stopped(conn: Conn) -> None:
    register_server(conn, status="stopped")
    silence(conn, 9999)
    register_witness(conn)
    assert mark_dead(conn) == []
    assert server_status(conn) == "stopped"


# -- who may judge a silent server --


def test_after_an_outage_nobody_is_dead_before_the_database_was_reachable_for_one_timeout(conn: Conn) -> None:
    """Everybody was silent for as long as the database was away; the first one that is heard again proves nothing."""
    job = claimed(conn)
    other = register_server(conn, "host:2:bbbb", heard_since="2020-01-01")
    for server in (SERVER, other):
        silence(conn, 50, server)
    assert queue(conn).reclaim_jobs() == []
    beat(conn, other)
    assert queue(conn).reclaim_jobs() == []
    assert (server_status(conn), server_status(conn, other)) == ("active", "active")
    assert complete(conn, job)


def test_a_server_that_was_heard_for_one_timeout_after_an_outage_is_a_witness(conn: Conn) -> None:
    claimed(conn)
    other = register_server(conn, "host:2:bbbb")
    for server in (SERVER, other):
        silence(conn, 100, server)
    beat(conn, other)
    conn.execute("UPDATE servers SET heard_since = heard_since - interval '39 s' WHERE id = %s", [other])
    assert mark_dead(conn) == []
    conn.execute("UPDATE servers SET heard_since = heard_since - interval '1 s' WHERE id = %s", [other])
    assert mark_dead(conn) == [SERVER]


def test_a_new_server_is_no_witness(conn: Conn) -> None:
    claimed(conn)
    silence(conn, 50)
    register_server(conn, "host:2:bbbb")
    assert mark_dead(conn) == []


def test_a_server_is_no_witness_while_it_is_silent_itself(conn: Conn) -> None:
    claimed(conn)
    silence(conn, 50)
    silence(conn, 21, register_witness(conn))
    assert mark_dead(conn) == []


@pytest.mark.parametrize("status", ["stopped", "dead"])
def test_a_server_that_is_gone_is_no_witness(conn: Conn, status: str) -> None:
    claimed(conn)
    silence(conn, 50)
    conn.execute("UPDATE servers SET status = %s WHERE id = %s", [status, register_witness(conn)])
    assert mark_dead(conn) == []


def test_a_draining_server_is_a_witness(conn: Conn) -> None:
    claimed(conn)
    silence(conn, 50)
    assert run(conn, "drain_server", server=register_witness(conn))
    assert mark_dead(conn) == [SERVER]


def test_heartbeats_without_a_gap_leave_the_witness_one(conn: Conn) -> None:
    claimed(conn)
    silence(conn, 50)
    witness = register_witness(conn)
    silence(conn, 19, witness)
    beat(conn, witness)
    assert mark_dead(conn) == [SERVER]


def test_a_server_that_drains_after_an_outage_hides_no_gap(conn: Conn) -> None:
    claimed(conn)
    silence(conn, 50)
    witness = register_witness(conn)
    silence(conn, 50, witness)
    assert run(conn, "drain_server", server=witness)
    assert mark_dead(conn) == []
    beat(conn, witness)
    assert mark_dead(conn) == []


def test_a_command_that_has_listened_for_one_timeout_is_a_witness(conn: Conn) -> None:
    claimed(conn)
    silence(conn, 50)
    now = one(conn, "SELECT now()")["now"]
    assert mark_dead(conn, now - timedelta(seconds=39)) == []
    assert mark_dead(conn, now - timedelta(seconds=40)) == [SERVER]


def test_a_heartbeat_under_way_saves_its_server(conn: Conn, connect: Connect) -> None:
    """The statement waits for the lock on the row, and then checks the row again."""
    claimed(conn)
    register_witness(conn)
    silence(conn, 50)
    judge = connect()
    with conn.transaction():
        beat(conn, SERVER)
        judged = begin(lambda: mark_dead(judge))
        wait_until_blocked(connect(), judge)
    assert judged.result(5) == []
    assert server_status(conn) == "active"


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
