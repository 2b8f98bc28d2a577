"""Where a claim starts in the index: dead entries under an old snapshot are not scanned again, and no job is missed."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from convertq.queue import scan_budget
from convertq.queue.claim import ClaimCursor
from convertq.queue.scan_budget import ScanBudget

from tests.conftest import Connect
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    config,
    cursor,
    database,
    insert_job,
    one,
    queue,
    register_server,
    run,
)
from tests.waiting import eventually

LITTER = """
INSERT INTO jobs (bytes, sha256, status, created_at)
SELECT 1, repeat('0', 64), 'queued', '2019-01-01'::timestamptz + n * interval '1 s' FROM generate_series(1, 12000) AS n
"""
DEAD = 12000  # more than scan_budget.MANY_ENTRIES


@pytest.fixture
def one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second scan from the start while the test claims, however slow the machine is."""
    for share in ("SHARE", "SHARE_WHEN_KNOWN"):
        monkeypatch.setattr(scan_budget, share, 1_000_000)


def leave_dead_entries(connect: Connect) -> None:
    """Thousands of claimed jobs at the beginning of the index, kept there by a snapshot that another session holds."""
    reader, writer = connect(), connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT FROM circuit_breaker")
    writer.execute("SET session_replication_role = replica")  # without events
    writer.execute(LITTER)
    writer.execute("UPDATE jobs SET status = 'complete', completed_at = now() WHERE created_at < '2020-01-01'")


def litter(conn: Conn, connect: Connect, mine: ClaimCursor) -> None:
    """Dead entries, and one claim that had to scan them."""
    leave_dead_entries(connect)
    assert mine.claim_job(SERVER, HOLDER).job is not None


def entries_read(conn: Conn, index: str, step: Callable[[], object]) -> int:
    """How many entries of this index one transaction reads, dead ones included."""
    count = "SELECT pg_stat_get_xact_tuples_returned(%s::regclass) AS entries"
    with conn.transaction():
        before = one(conn, count, index)["entries"]
        step()
        return int(one(conn, count, index)["entries"] - before)


@pytest.mark.usefixtures("one_scan")
def test_sixteen_idle_workers_of_a_host_do_not_scan_the_dead_entries_each(conn: Conn, connect: Connect) -> None:
    leave_dead_entries(connect)
    register_server(conn)
    host = ScanBudget()
    workers = [ClaimCursor(database(conn), config(), host) for _ in range(16)]

    def poll() -> None:
        for worker in workers * 4:
            assert worker.claim_job(SERVER, HOLDER).job is None

    assert entries_read(conn, "jobs_claimable", poll) < 3 * DEAD


@pytest.mark.usefixtures("one_scan")
def test_an_idle_worker_finds_a_new_job_behind_the_dead_entries(conn: Conn, connect: Connect) -> None:
    leave_dead_entries(connect)
    register_server(conn)
    mine = cursor(conn)
    assert mine.claim_job(SERVER, HOLDER).job is None
    claims = []

    def claim() -> None:
        claims.append(mine.claim_job(SERVER, HOLDER).job)

    for _ in range(5):
        insert_job(conn)
        assert entries_read(conn, "jobs_claimable", claim) < 100
        assert mine.claim_job(SERVER, HOLDER).job is None
    assert None not in claims


@pytest.mark.usefixtures("one_scan")
def test_the_entries_of_retries_that_were_made_are_not_read_by_every_claim(conn: Conn, connect: Connect) -> None:
    reader, writer = connect(), connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT FROM circuit_breaker")
    writer.execute("SET session_replication_role = replica")
    writer.execute(LITTER)
    writer.execute("UPDATE jobs SET retry_after = created_at")
    writer.execute("UPDATE jobs SET status = 'complete', completed_at = now(), retry_after = NULL")
    register_server(conn)
    mine = cursor(conn)

    def poll() -> None:
        for _ in range(20):
            assert mine.claim_job(SERVER, HOLDER).job is None

    assert entries_read(conn, "jobs_waiting_for_retry", poll) < 4 * DEAD
    due = insert_job(conn, retry_after=one(conn, "SELECT now() AS now")["now"])
    job = mine.claim_job(SERVER, HOLDER).job
    assert job is not None
    assert job.id == due


@pytest.mark.parametrize("columns", [{"created_at": "2020-01-01"}, {"priority": 9}], ids=["older", "more urgent"])
@pytest.mark.parametrize("known", [True, False], ids=["woken", "polling"])
def test_an_idle_worker_finds_a_job_before_its_position_after_a_bounded_time(
    conn: Conn, connect: Connect, columns: dict[str, object], known: bool
) -> None:
    leave_dead_entries(connect)
    register_server(conn)
    mine = cursor(conn)
    assert mine.claim_job(SERVER, HOLDER).job is None
    job_id = insert_job(conn, **columns)
    job = eventually(lambda: mine.claim_job(SERVER, HOLDER, known=known).job, what="the job")
    assert job is not None
    assert job.id == job_id


@pytest.mark.usefixtures("one_scan")
def test_no_claim_finds_nothing_for_longer_than_the_longest_pause(
    conn: Conn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_budget, "SCAN_AT_LEAST_EVERY_SECONDS", 1.0)
    leave_dead_entries(connect)
    register_server(conn)
    mine = cursor(conn)
    assert mine.claim_job(SERVER, HOLDER).job is None
    insert_job(conn, priority=9)
    assert mine.claim_job(SERVER, HOLDER, known=True).job is None, "it is before the position"
    assert eventually(lambda: mine.claim_job(SERVER, HOLDER).job, what="the job")


def test_a_job_of_each_priority_is_claimed_although_each_has_dead_entries(conn: Conn, connect: Connect) -> None:
    leave_dead_entries(connect)
    writer = connect()
    writer.execute("SET session_replication_role = replica")
    for priority in (5, -5):
        writer.execute(LITTER)
        writer.execute("UPDATE jobs SET priority = %s WHERE status = 'queued'", [priority])
        writer.execute("UPDATE jobs SET status = 'complete', completed_at = now() WHERE status = 'queued'")
    register_server(conn)
    mine = cursor(conn)
    for priority in (0, 5, -5, -5, 5, 0):
        job_id = insert_job(conn, priority=priority)
        job = eventually(lambda: mine.claim_job(SERVER, HOLDER, known=True).job, what=f"priority {priority}")
        assert job is not None
        assert job.id == job_id


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
    """Claims start at the last claimed key for as long as they ever may, and there is always something there."""
    monkeypatch.setattr(scan_budget, "SHARE", 1_000_000)
    monkeypatch.setattr(scan_budget, "SCAN_AT_LEAST_EVERY_SECONDS", 2.0)
    register_server(conn)
    mine = cursor(conn)
    for _ in range(3):
        insert_job(conn)
    assert mine.claim_job(SERVER, HOLDER).job
    other = connect()
    litter(conn, connect, mine)
    expected, taken = appear(other), []

    def is_taken() -> bool:
        insert_job(conn)
        job = mine.claim_job(SERVER, HOLDER).job
        assert job is not None
        taken.append(job.id)
        return job.id == expected

    eventually(is_taken, what="it is taken")
    assert len(taken) > 1, "others were taken meanwhile: claims started at the last claimed key"


@pytest.mark.parametrize("due_since", ["now", "yesterday"])
def test_a_retry_that_is_due_is_found_wherever_it_is_in_the_order(conn: Conn, connect: Connect, due_since: str) -> None:
    register_server(conn)
    mine = cursor(conn)
    for _ in range(3):
        insert_job(conn)
    assert mine.claim_job(SERVER, HOLDER).job
    litter(conn, connect, mine)
    due = insert_job(conn, created_at="2020-01-01", retry_after=due_since)

    def is_claimed() -> bool:
        insert_job(conn)
        job = mine.claim_job(SERVER, HOLDER).job
        return job is not None and job.id == due

    eventually(is_claimed, what="the retry is taken")


def test_while_nothing_is_slow_the_order_is_strict(conn: Conn) -> None:
    register_server(conn)
    mine = cursor(conn)
    insert_job(conn)
    insert_job(conn)
    assert mine.claim_job(SERVER, HOLDER).job
    urgent = insert_job(conn, priority=9)

    def is_claimed() -> bool:
        job = mine.claim_job(SERVER, HOLDER).job
        insert_job(conn)
        return job is not None and job.id == urgent

    eventually(is_claimed, what="the more urgent one is next")
