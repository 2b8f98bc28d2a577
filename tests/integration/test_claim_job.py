"""Owns the promises of the claim: the right job, to one worker, and only while the queue is not held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest
from convertq.worker import job_queue
from convertq.worker.job_queue import LOOK_EVERY, WALK_AT_LEAST_EVERY, JobQueue

from tests.conftest import Connect, Dirs
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    ask,
    breaker,
    claim,
    claim_all,
    claimed,
    config,
    everything,
    insert_job,
    last_event,
    one,
    open_database,
    queue,
    queued_job,
    register_server,
    row_of,
    run,
    set_breaker,
    together,
)
from tests.waiting import eventually


def in_order(conn: Conn) -> list[UUID]:
    ids = []
    while (job := ask(conn)[0]) is not None:
        ids.append(job.id)
    return ids


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
    assert ask(conn)[0] is None
    assert everything(conn) == before


def test_nothing_to_claim_is_an_answer_too(conn: Conn) -> None:
    job, gate = ask(conn)
    assert job is None
    assert (gate.breaker, gate.probe_is_due, gate.server_is_active, gate.more_to_claim) == (
        "closed",
        False,
        True,
        False,
    )


def test_the_last_of_the_queue_wakes_nobody(conn: Conn) -> None:
    for _ in range(3):
        insert_job(conn)
    assert [ask(conn)[1].more_to_claim for _ in range(4)] == [True, True, False, False]


def test_a_job_that_waits_for_its_retry_is_not_more_to_claim(conn: Conn) -> None:
    insert_job(conn)
    insert_job(conn, retry_after="tomorrow")
    assert not ask(conn)[1].more_to_claim


@pytest.mark.parametrize("status", ["draining", "stopped", "dead"])
def test_a_server_that_is_not_active_gets_nothing(conn: Conn, status: str) -> None:
    insert_job(conn)
    register_server(conn, status=status)
    job, gate = queue(conn).claim_job(SERVER, HOLDER)
    assert job is None
    assert not gate.server_is_active


def test_a_server_that_was_never_registered_gets_nothing(conn: Conn) -> None:
    insert_job(conn)
    assert queue(conn).claim_job(SERVER, HOLDER)[0] is None


# -- the breaker --


@pytest.mark.parametrize("columns", [{}, {"by_hand": True}, {"probe_by": HOLDER}, {"probe_after": "yesterday"}])
def test_an_open_breaker_holds_the_queue(conn: Conn, columns: dict[str, object]) -> None:
    job_id = insert_job(conn)
    set_breaker(conn, "open", **columns)
    job, gate = ask(conn)
    assert (job, gate.breaker) == (None, "open")
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
    assert ask(conn)[1].probe_is_due is due


def test_half_open_lets_one_job_through_for_the_one_that_probed(conn: Conn) -> None:
    first, _ = insert_job(conn, priority=1), insert_job(conn)
    set_breaker(conn, "half_open", probe_by=HOLDER)
    assert ask(conn, f"{SERVER}/2")[0] is None
    job = claim(conn)
    assert (job.id, job.is_trial, breaker(conn)["trial_job"]) == (first, True, first)
    assert ask(conn)[0] is None


def test_a_trial_under_way_is_not_probed_again(conn: Conn) -> None:
    insert_job(conn)
    set_breaker(conn, "half_open", probe_by=HOLDER)
    claim(conn)
    conn.execute("UPDATE circuit_breaker SET probe_after = 'yesterday'")
    assert not ask(conn)[1].probe_is_due


# -- the watermark: where a claim starts in the index --


LITTER = """
INSERT INTO jobs (bytes, sha256, status, created_at)
SELECT 1, repeat('0', 64), 'queued', '2019-01-01'::timestamptz + n * interval '1 s' FROM generate_series(1, 20000) AS n
"""


def litter(conn: Conn, connect: Connect, mine: JobQueue) -> None:
    """Thousands of taken rows at the beginning of the index, kept there by a snapshot that somebody holds; and one
    claim that had to walk over them."""
    reader, writer = connect(), connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT FROM circuit_breaker")
    writer.execute("SET session_replication_role = replica")  # without events
    writer.execute(LITTER)
    writer.execute("UPDATE jobs SET status = 'complete', completed_at = now() WHERE created_at < '2020-01-01'")
    assert mine.claim_job(SERVER, HOLDER)[0] is not None


@pytest.mark.parametrize("columns", [{"created_at": "2020-01-01"}, {"priority": 9}], ids=["older", "more urgent"])
def test_a_claim_says_nothing_to_do_only_when_there_is_nothing(
    conn: Conn, connect: Connect, columns: dict[str, object]
) -> None:
    register_server(conn)
    mine = queue(conn)
    insert_job(conn)
    insert_job(conn)
    assert mine.claim_job(SERVER, HOLDER)[0]
    litter(conn, connect, mine)
    insert_job(conn, **columns)
    assert mine.claim_job(SERVER, HOLDER)[0] is not None


def insert_urgent(conn: Conn) -> UUID:
    return insert_job(conn, priority=9)


def insert_old(conn: Conn) -> UUID:
    """By a program that brings its own created_at."""
    return insert_job(conn, created_at="2020-01-01")


def release_by_reclaim(conn: Conn) -> UUID:
    lost = {"leased_by": "host:9:dead/1", "lease_expires_at": "yesterday"}
    job_id = insert_job(conn, "processing", created_at="2020-01-01", **lost)
    assert [row["id"] for row in queue(conn).reclaim_jobs()] == [job_id]
    return job_id


def release_by_retry(conn: Conn) -> UUID:
    job_id = insert_job(conn, "failed", created_at="2020-01-01")
    run(conn, "retry_jobs", ids=[job_id])
    return job_id


@pytest.mark.parametrize("appear", [insert_urgent, insert_old, release_by_reclaim, release_by_retry])
def test_in_the_middle_of_a_queue_no_job_is_overlooked_for_long(
    conn: Conn, connect: Connect, appear: Callable[[Conn], UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims start behind the watermark for as long as they ever may, and there is always something there."""
    monkeypatch.setattr(job_queue, "SHARE_FOR_WALKING", 1_000_000)
    register_server(conn)
    mine = queue(conn)
    for _ in range(3):
        insert_job(conn)
    assert mine.claim_job(SERVER, HOLDER)[0]
    other = connect()
    litter(conn, connect, mine)
    expected, taken = appear(other), []

    def is_taken() -> bool:
        insert_job(conn)
        job, _ = mine.claim_job(SERVER, HOLDER)
        assert job is not None
        taken.append(job.id)
        return job.id == expected

    eventually(is_taken, timeout=WALK_AT_LEAST_EVERY + 2, what="it is taken")
    assert len(taken) > 1, "others were taken meanwhile: the watermark was in use"
    assert config().worker_poll_interval_ms > WALK_AT_LEAST_EVERY * 1000


def test_a_retry_that_is_due_is_found_wherever_it_is_in_the_order(conn: Conn, connect: Connect) -> None:
    register_server(conn)
    mine = queue(conn)
    for _ in range(3):
        insert_job(conn)
    assert mine.claim_job(SERVER, HOLDER)[0]
    litter(conn, connect, mine)
    due = insert_job(conn, created_at="2020-01-01", retry_after="yesterday")

    def is_claimed() -> bool:
        insert_job(conn)
        job, _ = mine.claim_job(SERVER, HOLDER)
        return job is not None and job.id == due

    eventually(is_claimed, timeout=LOOK_EVERY + 2, what="the retry is taken")


def test_while_nothing_is_slow_the_order_is_strict(conn: Conn) -> None:
    register_server(conn)
    mine = queue(conn)
    insert_job(conn)
    insert_job(conn)
    assert mine.claim_job(SERVER, HOLDER)[0]
    urgent = insert_job(conn, priority=9)

    def is_claimed() -> bool:
        job, _ = mine.claim_job(SERVER, HOLDER)
        insert_job(conn)
        return job is not None and job.id == urgent

    eventually(is_claimed, timeout=2, what="the more urgent one is next")


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
    assert queue(doomed).claim_job(SERVER, HOLDER)[0] is not None
    doomed.execute("ROLLBACK")
    assert claim(conn).id == job_id


def test_a_worker_claims_over_its_own_connection_without_a_transaction_left_open(database_url: str, conn: Conn) -> None:
    register_server(conn)
    insert_job(conn)
    with open_database(database_url) as opened:
        job, _ = JobQueue(opened, config()).claim_job(SERVER, HOLDER)
        assert job is not None
        states = conn.execute("SELECT state FROM pg_stat_activity WHERE application_name = 'convertq:tests'").fetchall()
    assert [row["state"] for row in states] == ["idle"]


def test_the_age_of_a_claimed_job_is_never_negative(conn: Conn) -> None:
    assert claimed(conn).queued_ms >= 0
