"""The claim: the right job, to one worker, and only while the queue is not held."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from convertq.queue.claim import ClaimCursor
from convertq.queue.estimates import estimate_jobs

from tests.conftest import Connect, Dirs
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    breaker,
    claim,
    claim_all,
    claimed,
    complete_and_claim,
    config,
    cursor,
    database,
    everything,
    insert_job,
    last_event,
    one,
    open_database,
    queued_job,
    register_server,
    row_of,
    run,
    set_breaker,
    together,
    try_claim,
)


def in_order(conn: Conn) -> list[UUID]:
    ids = []
    while (job := try_claim(conn).job) is not None:
        ids.append(job.id)
    return ids


def test_a_job_that_an_open_insert_refers_to_is_claimed(conn: Conn, connect: Connect, bounded: Conn) -> None:
    """Its foreign key shares a lock on the row, which is in nobody's way but that of a change of the key."""
    first, second, due = insert_job(conn), insert_job(conn), insert_job(conn, retry_after="yesterday")
    register_server(conn)
    other, mine = connect(), cursor(bounded)
    with other.transaction():
        for job_id in (first, second, due):
            other.execute("INSERT INTO job_events (job_id, event_type) VALUES (%s, 'downloaded')", [job_id])
        claimed_first = mine.claim_job(SERVER, HOLDER).job
        assert claimed_first is not None
        along = complete_and_claim(bounded, claimed_first).claim
        assert along is not None
        claimed_next = along.job
        assert claimed_next is not None
        claimed_last = mine.claim_job(SERVER, HOLDER).job
        assert claimed_last is not None
        assert [claimed_first.id, claimed_next.id, claimed_last.id] == [first, second, due]


def test_a_claim_takes_the_lease_and_counts_the_attempt(conn: Conn, dirs: Dirs) -> None:
    job_id = queued_job(conn, dirs, mapping="m", pretty=False)
    job = claim(conn)
    row = row_of(conn, job_id)
    assert (job.id, job.holder, job.attempt, job.mapping, job.pretty, job.bytes) == (
        job_id,
        HOLDER,
        1,
        "m",
        False,
        15,
    )
    assert not job.is_trial
    assert (row["status"], row["leased_by"], row["attempt_count"]) == ("processing", HOLDER, 1)
    assert row["last_attempt_at"] == row["started_at"] is not None
    assert one(conn, "SELECT lease_expires_at - last_attempt_at = interval '600 s' AS held FROM jobs")["held"]
    assert last_event(conn, job)["event_type"] == "processing"
    assert last_event(conn, job)["meta"] == {"worker": HOLDER, "attempt": 1}


def test_a_later_attempt_keeps_the_first_start(conn: Conn) -> None:
    insert_job(conn, attempt_count=1, started_at="2020-01-01", last_attempt_at="2020-01-01")
    job = claim(conn)
    row = row_of(conn, job)
    assert (job.attempt, row["started_at"].year) == (2, 2020)
    assert row["last_attempt_at"].year > 2020


def test_the_most_urgent_then_the_oldest_comes_first(conn: Conn) -> None:
    old, older = insert_job(conn, created_at="2020-01-02"), insert_job(conn, created_at="2020-01-01")
    low, high = insert_job(conn, priority=-(2**31)), insert_job(conn, priority=2**31 - 1)
    assert in_order(conn) == [high, older, old, low]


def test_of_the_same_moment_each_is_taken(conn: Conn) -> None:
    ids = {insert_job(conn, created_at="2020-01-01") for _ in range(5)}
    assert set(in_order(conn)) == ids


def test_a_retry_is_taken_when_it_is_due_and_not_before(conn: Conn) -> None:
    insert_job(conn, retry_after="tomorrow", priority=9)
    never_failed, due = insert_job(conn, priority=1), insert_job(conn, retry_after="yesterday")
    assert in_order(conn) == [never_failed, due]


@pytest.mark.parametrize("status", ["uploaded", "processing", "complete", "failed"])
def test_only_queued_jobs_are_claimed(conn: Conn, status: str) -> None:
    insert_job(conn, status)
    before = everything(conn)
    assert try_claim(conn).job is None
    assert everything(conn) == before


def test_nothing_to_claim_is_an_answer_too(conn: Conn) -> None:
    claim = try_claim(conn)
    job, state = claim.job, claim.state
    assert job is None
    assert (state.breaker, state.probe_is_due, state.server_is_active, state.left_over) == (
        "closed",
        False,
        True,
        False,
    )


def test_the_last_of_the_queue_wakes_nobody(conn: Conn) -> None:
    for _ in range(3):
        insert_job(conn)
    assert [try_claim(conn).state.left_over for _ in range(4)] == [1, 1, 0, 0]


def test_a_job_that_waits_for_its_retry_is_not_more_to_claim(conn: Conn) -> None:
    insert_job(conn)
    insert_job(conn, retry_after="tomorrow")
    assert not try_claim(conn).state.left_over


@pytest.mark.parametrize("status", ["draining", "stopped", "dead"])
def test_a_server_that_is_not_active_gets_nothing(conn: Conn, status: str) -> None:
    insert_job(conn)
    register_server(conn, status=status)
    claim = cursor(conn).claim_job(SERVER, HOLDER)
    job, state = claim.job, claim.state
    assert job is None
    assert not state.server_is_active


def test_a_server_that_was_never_registered_gets_nothing(conn: Conn) -> None:
    insert_job(conn)
    assert cursor(conn).claim_job(SERVER, HOLDER).job is None


# -- the breaker --


@pytest.mark.parametrize("columns", [{}, {"by_hand": True}, {"probe_by": HOLDER}, {"probe_after": "yesterday"}])
def test_an_open_breaker_holds_the_queue(conn: Conn, columns: dict[str, object]) -> None:
    job_id = insert_job(conn)
    set_breaker(conn, "open", **columns)
    claim = try_claim(conn)
    job, state = claim.job, claim.state
    assert (job, state.breaker) == (None, "open")
    assert (row_of(conn, job_id)["status"], row_of(conn, job_id)["attempt_count"]) == ("queued", 0)


@pytest.mark.parametrize(
    ("columns", "due"),
    [
        ({"probe_after": "yesterday"}, True),
        ({"probe_after": "tomorrow"}, False),
        ({"probe_after": "yesterday", "by_hand": True}, False),
    ],
)
def test_a_claim_learns_whether_a_probe_is_due(conn: Conn, columns: dict[str, object], due: bool) -> None:
    set_breaker(conn, "open", **columns)
    assert try_claim(conn).state.probe_is_due is due


def test_half_open_lets_one_job_through_for_the_one_that_probed(conn: Conn) -> None:
    first, _ = insert_job(conn, priority=1), insert_job(conn)
    set_breaker(conn, "half_open", probe_by=HOLDER)
    assert try_claim(conn, f"{SERVER}/2").job is None
    job = claim(conn)
    assert (job.id, job.is_trial, breaker(conn)["trial_job"]) == (first, True, first)
    assert try_claim(conn).job is None


def test_a_trial_under_way_is_not_probed_again(conn: Conn) -> None:
    insert_job(conn)
    set_breaker(conn, "half_open", probe_by=HOLDER)
    claim(conn)
    conn.execute("UPDATE circuit_breaker SET probe_after = 'yesterday'")
    assert not try_claim(conn).state.probe_is_due


# -- many at once --


def test_never_two_workers_have_one_job(conn: Conn, connect: Connect) -> None:
    ids = [insert_job(conn, priority=number % 3) for number in range(200)]
    register_server(conn)
    taken = together(*[lambda slot=slot: claim_all(connect, f"{SERVER}/{slot}") for slot in range(8)])
    found = Counter(job for ids in taken if isinstance(ids, list) for job in ids)
    assert found == Counter(ids)
    assert one(conn, "SELECT count(*) FROM job_events WHERE event_type = 'processing'")["count"] == 200
    assert one(conn, "SELECT max(attempt_count) FROM jobs")["max"] == 1


def test_a_locked_job_is_passed_over_and_not_waited_for(conn: Conn, connect: Connect) -> None:
    first, second = insert_job(conn, priority=1), insert_job(conn)
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [first])
        assert claim(conn).id == second
    assert claim(conn).id == first


def test_a_claim_that_is_rolled_back_leaves_the_job_queued(conn: Conn, connect: Connect) -> None:
    job_id = insert_job(conn)
    register_server(conn)
    doomed = connect()
    doomed.execute("BEGIN")
    assert cursor(doomed).claim_job(SERVER, HOLDER).job is not None
    doomed.execute("ROLLBACK")
    assert claim(conn).id == job_id


def test_a_worker_claims_over_its_own_connection_without_a_transaction_left_open(database_url: str, conn: Conn) -> None:
    register_server(conn)
    insert_job(conn)
    with open_database(database_url) as opened:
        job = ClaimCursor(opened, config()).claim_job(SERVER, HOLDER).job
        assert job is not None
        states = conn.execute("SELECT state FROM pg_stat_activity WHERE application_name = 'convertq:tests'").fetchall()
    assert [row["state"] for row in states] == ["idle"]


def test_the_age_of_a_claimed_job_is_never_negative(conn: Conn) -> None:
    assert claimed(conn).queued_ms >= 0


def test_the_claim_the_list_and_the_position_have_one_order(conn: Conn) -> None:
    """Priority first, then the turn, then age, then the id."""
    ids = [UUID(int=number) for number in range(1, 6)]
    conn.execute("SET session_replication_role = replica")  # a trigger would give the turns
    insert_job(conn, id=ids[4], priority=0, turn=0, created_at="2020-01-01")
    insert_job(conn, id=ids[3], priority=1, turn=2, created_at="2020-01-01")
    insert_job(conn, id=ids[2], priority=1, turn=1, created_at="2020-01-02")
    insert_job(conn, id=ids[1], priority=1, turn=1, created_at="2020-01-01")
    insert_job(conn, id=ids[0], priority=1, turn=1, created_at="2020-01-01")
    conn.execute("SET session_replication_role = origin")
    assert [row["id"] for row in run(conn, "list_next_jobs", limit=9)] == ids
    positions = estimate_jobs(database(conn), config(), ids).positions
    assert [positions[job] for job in ids] == [1, 2, 3, 4, 5]
    assert [claim(conn).id for _ in ids] == ids


def test_the_route_of_a_job_follows_from_its_mapping_whatever_its_writer_sends(conn: Conn) -> None:
    assert row_of(conn, insert_job(conn))["route"] == "default"
    job = insert_job(conn, route="elsewhere")
    conn.execute("UPDATE jobs SET route = 'elsewhere'")
    assert row_of(conn, job)["route"] == "default"
