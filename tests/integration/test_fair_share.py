"""Owners take turns within a priority, by their weight and for every writer; and no owner has more running jobs than
allowed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import psycopg
import pytest
from convertq.queue import fair_share, scan_budget
from convertq.queue.claim import ClaimCursor
from convertq.queue.fair_share import FairShare, set_fair_share
from convertq.queue.scan_budget import ScanBudget

from tests.conftest import Connect
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    claim,
    complete,
    complete_and_claim,
    config,
    cursor,
    database,
    fail,
    insert_job,
    one,
    register_server,
    retry_later,
    row_of,
    run,
    set_status,
    try_claim,
)

MANY = """
INSERT INTO jobs (owner_session_id, bytes, sha256, status, created_at)
SELECT %s, n, lpad(n::text, 64, '0'), 'queued', '2020-01-01'::timestamptz + n * interval '1 s'
  FROM generate_series(1, %s) AS n
"""


def share(conn: Conn, *, fair: bool = False, cap: int = 0) -> None:
    """As a supervisor that starts with these settings, and has finished what follows."""
    set_fair_share(database(conn), config(FAIR_SHARE=int(fair), OWNER_MAX_RUNNING=cap))
    keep_up(conn)


def keep_up(conn: Conn) -> bool:
    """Once to do it, once to see that it is done, and once to return whether anything is left."""
    upkeep = FairShare()
    return [upkeep.keep_up(database(conn), math.inf) for _ in range(3)][-1]


def insert_many(conn: Conn, owner: str | None, jobs: int) -> None:
    conn.execute(MANY, [owner, jobs])


def turn_of(conn: Conn, job_id: UUID) -> int:
    return int(row_of(conn, job_id)["turn"])


def owners_of_next(conn: Conn, jobs: int) -> str:
    """The owners of the next jobs, in the order in which they are claimed; `-` is nobody."""
    return "".join(row_of(conn, claim(conn).id)["owner_session_id"] or "-" for _ in range(jobs))


def test_owners_take_turns_and_a_new_one_begins_with_the_present_turn(conn: Conn) -> None:
    share(conn, fair=True)
    insert_many(conn, "a", 60)
    insert_many(conn, "b", 3)
    assert owners_of_next(conn, 6) == "ababab"
    assert owners_of_next(conn, 20) == "a" * 20
    keep_up(conn)
    insert_many(conn, "c", 3)
    insert_many(conn, None, 2)
    rounds = [sorted(owners_of_next(conn, jobs)) for jobs in (1, 3, 3, 2)]
    assert rounds == [["a"], ["-", "a", "c"], ["-", "a", "c"], ["a", "c"]]


def test_turns_are_in_proportion_to_the_weight(conn: Conn) -> None:
    share(conn, fair=True)
    conn.execute("INSERT INTO owners VALUES ('a', 3), ('c', 0.5)")
    conn.execute("INSERT INTO owners (owner_session_id) VALUES ('b')")
    for owner in "abc":
        insert_many(conn, owner, 60)
    taken = Counter(owners_of_next(conn, 45))
    assert all(abs(taken[owner] - jobs) <= 1 for owner, jobs in {"a": 30, "b": 10, "c": 5}.items()), taken
    for weight in ("0", "-1", "'infinity'", "'nan'"):
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute(f"INSERT INTO owners VALUES ('d', {weight})")


def test_a_higher_priority_goes_first_whatever_the_turns_are(conn: Conn) -> None:
    share(conn, fair=True)
    insert_many(conn, "a", 3)
    urgent = [insert_job(conn, owner_session_id="a", priority=1) for _ in range(3)]
    assert [claim(conn).id for _ in urgent] == urgent
    moved = one(conn, "UPDATE jobs SET priority = 2 WHERE status = 'queued' AND bytes = 3 RETURNING id")["id"]
    assert claim(conn).id == moved


def test_a_retry_keeps_its_turn_and_a_manual_retry_gets_a_new_one(conn: Conn) -> None:
    share(conn, fair=True)
    insert_many(conn, "a", 10)
    job, other = claim(conn), claim(conn)
    turn = turn_of(conn, job.id)
    assert retry_later(conn, job, delay_ms=0)
    assert cursor(conn).promote_due_jobs() == 1
    assert turn_of(conn, job.id) == turn
    again = claim(conn)
    assert again.id == job.id, "it goes before the others"
    assert run(conn, "requeue_job", **again.fence, reason="shutdown", delay_ms=0, gateway_status=None, gateway=None)
    assert (turn_of(conn, job.id), claim(conn).id) == (turn, job.id)
    assert fail(conn, other)
    assert run(conn, "retry_jobs", ids=[other.id])
    last = one(conn, "SELECT max(turn) AS turn FROM jobs WHERE bytes = 10")["turn"]
    assert turn_of(conn, other.id) > last, "it is the last one of its owner"
    third = claim(conn)
    assert fail(conn, third)
    again_by_others = "UPDATE jobs SET status = 'queued', error_code = NULL, error_message = NULL, failed_at = NULL"
    conn.execute(f"{again_by_others}, dead_letter = false, attempt_count = 0 WHERE id = %s".encode(), [third.id])
    assert turn_of(conn, third.id) > turn_of(conn, other.id), "also where its times stay as they were"


def test_a_job_that_gets_another_priority_gets_a_turn_of_that_one(conn: Conn) -> None:
    share(conn, fair=True)
    insert_many(conn, "a", 10)
    last = one(conn, "SELECT id, turn FROM jobs WHERE bytes = 10")
    conn.execute("UPDATE jobs SET priority = 5 WHERE bytes = 10")
    assert turn_of(conn, last["id"]) < last["turn"]


def test_every_writer_gets_a_turn_when_its_job_becomes_claimable_and_not_before(conn: Conn) -> None:
    share(conn, fair=True)
    first = insert_job(conn, owner_session_id="a", turn=-5)
    stored = insert_job(conn, "uploaded", owner_session_id="a")
    later = insert_job(conn, owner_session_id="a", not_before="tomorrow")
    conn.execute("UPDATE jobs SET turn = -7 WHERE id = %s", [first])
    assert [turn_of(conn, job) for job in (stored, later)] == [0, 0]
    set_status(conn, stored, "queued")
    conn.execute("UPDATE jobs SET not_before = NULL, retry_after = NULL WHERE id = %s", [later])
    turns = [turn_of(conn, job) for job in (first, stored, later)]
    assert turns == [turns[0] + n * 1_000_000 for n in range(3)]
    assert turns[0] < -7


def test_simultaneous_submissions_of_an_owner_do_not_wait_for_each_other(conn: Conn, connect: Connect) -> None:
    share(conn, fair=True)
    other = connect()
    other.execute("SET lock_timeout = '2s'")
    with conn.transaction():
        mine = insert_job(conn, owner_session_id="a")
        theirs = insert_job(other, owner_session_id="a")
    assert turn_of(conn, mine) == turn_of(conn, theirs)
    assert turn_of(conn, insert_job(conn, owner_session_id="a")) == turn_of(conn, mine) + 1_000_000


def test_it_can_be_turned_on_and_off_while_jobs_are_queued(conn: Conn, connect: Connect) -> None:
    insert_many(conn, "a", 1200)
    parked = insert_job(conn, owner_session_id="a", retry_after="infinity")
    late, locking = connect(), connect()
    with late.transaction():
        insert_job(late, owner_session_id="late")  # it has read the setting from before
        with locking.transaction():
            one(locking, "SELECT id FROM jobs WHERE bytes = 7 FOR UPDATE")
            set_fair_share(database(conn), config(FAIR_SHARE=1))
            insert_many(conn, "b", 3)
            assert owners_of_next(conn, 1) == "b", "jobs with a turn do not wait until all others have theirs"
            assert FairShare().keep_up(database(conn), math.inf)
            assert one(conn, "SELECT jobs_follow FROM fair_share") == {"jobs_follow": False}
        keep_up(conn)
        assert one(conn, "SELECT jobs_follow FROM fair_share") == {"jobs_follow": False}, "the late one is to come"
    keep_up(conn)
    assert one(conn, "SELECT jobs_follow FROM fair_share") == {"jobs_follow": True}
    assert one(conn, "SELECT count(*) FROM jobs WHERE retry_after IS NULL AND turn > -2")["count"] == 0
    assert sorted(owners_of_next(conn, 5)) == sorted("aabblate")
    set_fair_share(database(conn), config(FAIR_SHARE=0))
    assert one(conn, "UPDATE jobs SET retry_after = NULL WHERE id = %s RETURNING turn", parked)["turn"] == 0
    assert not keep_up(conn), "nothing is left to do"
    assert one(conn, "SELECT count(*) FROM jobs WHERE status = 'queued' AND turn <> 0")["count"] == 0
    ages = [row_of(conn, claim(conn).id)["created_at"] for _ in range(3)]
    assert ages == sorted(ages)


def leave_dead_entries(conn: Conn, connect: Connect, jobs: int = 1_500) -> None:
    """Of jobs with turns that were claimed, kept in the index by a snapshot that another session holds."""
    reader = connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT FROM circuit_breaker")
    insert_many(conn, "a", jobs + 400)
    conn.execute("SET session_replication_role = replica")
    conn.execute("UPDATE jobs SET status = 'complete', completed_at = now() WHERE bytes <= %s", [jobs])
    conn.execute("SET session_replication_role = origin")


def test_a_new_owners_job_is_found_where_claims_start_at_a_position(
    conn: Conn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("SHARE", "SHARE_WHEN_KNOWN"):  # no second scan from the start
        monkeypatch.setattr(scan_budget, constant, 1_000_000)
    monkeypatch.setattr(scan_budget, "TRAIL_ENTRIES", 40)
    share(conn, fair=True)
    leave_dead_entries(conn, connect)
    register_server(conn)
    scans = ScanBudget()
    mine = ClaimCursor(database(conn), config(), scans)
    for _ in range(100):
        assert mine.claim_job(SERVER, HOLDER).job
    assert scans.is_limited
    FairShare({"default": scans}).keep_up(database(conn), math.inf)
    for n in range(100):
        if n % 25 == 0:
            slow = connect()
            with slow.transaction():
                new = insert_job(slow, owner_session_id=f"new {n}")
                for _ in range(8):  # claimed between its turn and its commit
                    assert mine.claim_job(SERVER, HOLDER).job
            assert mine.claim_job(SERVER, HOLDER).job.id == new  # type: ignore[union-attr]
        assert mine.claim_job(SERVER, HOLDER).job


# -- OWNER_MAX_RUNNING --


def running(conn: Conn) -> dict[str, int]:
    rows = conn.execute("SELECT owner_session_id AS o, count(*) AS n FROM jobs WHERE status = 'processing' GROUP BY 1")
    return {str(row["o"]): row["n"] for row in rows}


def claim_all(conn: Conn, workers: Sequence[int] = range(1, 9)) -> dict[str, int]:
    for worker in workers:
        try_claim(conn, f"{SERVER}/{worker}")
    return running(conn)


@pytest.mark.parametrize("fair", [True, False])
def test_an_owner_has_no_more_running_jobs_than_allowed(conn: Conn, fair: bool) -> None:
    share(conn, fair=fair, cap=2)
    insert_many(conn, "a", 20)
    insert_many(conn, "b", 1)
    insert_many(conn, None, 5)
    assert claim_all(conn) == {"a": 2, "b": 1, "None": 2}
    leased = one(conn, "SELECT id FROM jobs WHERE owner_session_id = 'a' AND status = 'processing' LIMIT 1")["id"]
    set_status(conn, leased, "failed")
    assert claim_all(conn) == {"a": 2, "b": 1, "None": 2}
    share(conn)
    assert sum(claim_all(conn).values()) == 5 + 8


def test_simultaneous_claims_exceed_the_limit_by_one_each_at_most(conn: Conn, connect: Connect) -> None:
    share(conn, cap=1)
    insert_many(conn, "a", 30)
    register_server(conn)
    workers = [connect() for _ in range(3)]
    for number, worker in enumerate(workers, start=1):
        worker.execute("BEGIN")
        claimed = run(worker, "complete_and_claim", **cursor_request(worker, f"{SERVER}/{number}"))
        assert len(claimed) == 1
        assert claimed[0]["id"] is not None
    for worker in workers:
        worker.execute("COMMIT")
    assert running(conn) == {"a": 3}
    assert try_claim(conn).job is None


def cursor_request(conn: Conn, holder: str) -> dict[str, object]:
    request = cursor(conn).request(SERVER, holder, wanted=8, count_up_to=32)
    return {**request.parameters, "finished": "[]", "retention_days": 0}


def test_most_jobs_of_an_owner_at_the_limit_wait_outside_the_index_of_the_claim(
    conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_share, "WINDOW_JOBS", 5)
    monkeypatch.setattr(fair_share, "SLACK_JOBS", 2)
    share(conn, cap=1)
    insert_many(conn, "a", 40)
    first = claim(conn)
    keep_up(conn)
    claimable = "SELECT count(*) FROM jobs WHERE status = 'queued' AND retry_after IS NULL"
    assert one(conn, claimable)["count"] == 5
    last = insert_job(conn, owner_session_id="a")
    assert one(conn, "SELECT over_cap FROM jobs WHERE id = %s", last)["over_cap"], "it waits behind the others"
    urgent, theirs = insert_job(conn, owner_session_id="a", priority=1), insert_job(conn, owner_session_id="b")
    assert claim(conn, f"{SERVER}/2").id == theirs
    assert complete(conn, first)
    done = [claim(conn)]
    assert done[0].id == urgent
    cancelled = one(conn, "SELECT id FROM jobs WHERE over_cap ORDER BY created_at LIMIT 1")["id"]
    set_status(conn, cancelled, "cancelled")
    assert row_of(conn, cancelled)["retry_after"] is None
    while done[-1].id != last:
        completion = complete_and_claim(conn, done[-1])
        assert completion.claim is not None
        assert completion.claim.jobs == [], "the completed job still counts in its own transaction"
        job = try_claim(conn).job
        if job is None:
            keep_up(conn)
        done.append(job or claim(conn))
    ids = [job.id for job in done[1:]]
    rows = conn.execute(
        "SELECT id FROM jobs WHERE owner_session_id = 'a' AND priority = 0 AND id <> ALL (%s) ORDER BY created_at",
        [[first.id, cancelled]],
    )
    assert ids == [row["id"] for row in rows], "in their order"
    insert_many(conn, "c", 30)
    claim(conn, f"{SERVER}/3")
    keep_up(conn)
    assert one(conn, "SELECT count(*) FROM jobs WHERE over_cap")["count"] == 24
    share(conn)
    assert one(conn, "SELECT count(*) FROM jobs WHERE over_cap OR retry_after IS NOT NULL")["count"] == 0
