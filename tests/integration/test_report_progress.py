"""report_progress: one row per job, seen while it runs, and each write keeps the lease."""

from __future__ import annotations

import pytest

from tests.jobs import (
    Conn,
    claimed,
    complete,
    everything,
    expire_lease,
    fail,
    lose_lease,
    one,
    queue,
    retry_later,
    run,
)


def progress(conn: Conn) -> list[tuple[object, ...]]:
    rows = conn.execute("SELECT step, percent, bytes_done, bytes_total FROM job_progress").fetchall()
    return [tuple(row.values()) for row in rows]


def test_the_first_report_makes_the_row_and_the_next_ones_change_it(conn: Conn) -> None:
    job, mine = claimed(conn), queue(conn)
    assert mine.report_progress(job, "reading", 10, 100, 1000)
    assert progress(conn) == [("reading", 10, 100, 1000)]
    assert mine.report_progress(job, "writing", 80, 5, None)
    assert progress(conn) == [("writing", 80, 5, None)]


def test_its_time_moves(conn: Conn) -> None:
    job, mine = claimed(conn), queue(conn)
    times = []
    for _ in range(3):
        mine.report_progress(job, "reading", 1, 1, 1)
        times.append(one(conn, "SELECT updated_at FROM job_progress")["updated_at"])
    assert times == sorted(set(times))


def test_each_report_extends_the_lease(conn: Conn) -> None:
    job = claimed(conn)
    expire_lease(conn, job)
    job.lease_ends = 0.0
    assert queue(conn).report_progress(job, "reading", 1, 1, 1)
    assert job.lease_ends > 0
    assert queue(conn).reclaim_jobs() == []


def test_a_lost_lease_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    queue(conn).report_progress(job, "reading", 1, 1, 1)
    taken = lose_lease(conn, job)
    queue(conn).report_progress(taken, "converting", 50, 9, 9)
    before = everything(conn)
    assert not queue(conn).report_progress(job, "writing", 99, 1, 1)
    assert everything(conn) == before


@pytest.mark.parametrize("ending", ["complete", "fail", "retry", "release", "reclaim", "requeue"])
def test_whatever_ends_the_attempt_clears_it(conn: Conn, ending: str) -> None:
    job, mine = claimed(conn), queue(conn)
    mine.report_progress(job, "reading", 1, 1, 1)
    match ending:
        case "complete":
            complete(conn, job)
        case "fail":
            fail(conn, job)
        case "retry":
            retry_later(conn, job)
        case "release":
            mine.requeue_job(job, "shutdown")
        case "reclaim":
            expire_lease(conn, job)
            mine.reclaim_jobs()
        case "requeue":
            mine.requeue_worker_jobs(job.holder, counted=True, reason="x")
    assert progress(conn) == []


def test_progress_is_shown_with_the_job(conn: Conn) -> None:
    job = claimed(conn)
    queue(conn).report_progress(job, "converting", 50, 7, 9)
    shown = run(conn, "get_job", id=job.id)[0]["progress"]
    assert (shown["step"], shown["percent"], shown["bytes_done"]) == ("converting", 50, 7)
