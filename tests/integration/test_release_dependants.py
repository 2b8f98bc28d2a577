"""Dependants that are left for later: a locked one, or thousands, never hold up a completion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from tests.conftest import Connect, Environment
from tests.jobs import (
    Conn,
    begin,
    claimed,
    complete,
    events_of,
    insert_job,
    one,
    open_database,
    queue,
    run,
    status_of,
    together,
    wait_until_blocked,
)
from tests.processes import run as run_convertq

SLICE = 1000


def waiting_for(conn: Conn, *needed: UUID) -> UUID:
    with conn.transaction():
        job = insert_job(conn, "uploaded")
        for other in needed:
            run(conn, "add_dependency", id=job, depends_on=other)
    return job


def many_waiting_for(conn: Conn, needed: UUID, count: int) -> None:
    """Without the triggers of a link, each of which looks for a cycle."""
    with conn.transaction():
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute(
            "WITH made AS (INSERT INTO jobs (bytes, sha256, status) SELECT 1, repeat('0', 64), 'uploaded'"
            " FROM generate_series(1, %s) RETURNING id)"
            " INSERT INTO job_dependencies SELECT id, %s FROM made",
            [count, needed],
        )
        conn.execute("UPDATE jobs SET needs_follow_up = true WHERE id = %s", [needed])


@contextmanager
def locked(connect: Connect, job_id: UUID) -> Iterator[None]:
    """By another program, in a transaction that stays open."""
    foreign = connect()
    with foreign.transaction():
        foreign.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [job_id])
        yield


def left_over(conn: Conn) -> list[UUID]:
    return [row["first_job"] for row in conn.execute("SELECT first_job FROM dependants_to_release ORDER BY 1")]


def release_all(conn: Conn) -> int:
    """A pass of a worker; how many slices it took."""
    place, slices = queue(conn).release_dependants(None), 1
    while place is not None:
        place, slices = queue(conn).release_dependants(place), slices + 1
    return slices


def count(conn: Conn, status: str) -> int:
    return int(one(conn, "SELECT count(*) FROM jobs WHERE status = %s", status)["count"])


def test_a_locked_dependant_does_not_hold_up_its_dependency(database_url: str, conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    held, free = waiting_for(conn, first.id), waiting_for(conn, first.id)
    with open_database(database_url) as mine, locked(connect, held):
        assert complete(mine.connection, first)
        assert (status_of(conn, first), status_of(conn, free), status_of(conn, held)) == (
            "complete", "queued", "uploaded",
        )  # fmt: skip
        assert left_over(conn) == [held]
        assert release_all(conn) == 1
        assert left_over(conn) == [held]
    release_all(conn)
    assert (status_of(conn, held), events_of(conn, held)) == ("queued", ["created", "queued"])
    assert left_over(conn) == []


def test_its_event_says_what_queued_it(conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    job_id = waiting_for(conn, first.id)
    with locked(connect, job_id):
        assert complete(conn, first)
    release_all(conn)
    query = "SELECT meta FROM job_events WHERE job_id = %s AND event_type = 'queued'"
    assert one(conn, query, job_id)["meta"] == {"by": "dependencies"}


def test_the_sessions_own_lock_timeout_stays_what_it_was(conn: Conn, connect: Connect) -> None:
    conn.execute("SET lock_timeout = '7s'")
    for is_locked in (False, True):
        first = claimed(conn)
        job_id = waiting_for(conn, first.id)
        with conn.transaction():
            if is_locked:
                with locked(connect, job_id):
                    complete(conn, first)
            else:
                complete(conn, first)
            assert one(conn, "SHOW lock_timeout")["lock_timeout"] == "7s"


def test_few_dependants_leave_nothing_behind(conn: Conn) -> None:
    first = claimed(conn)
    waiting = [waiting_for(conn, first.id) for _ in range(3)]
    complete(conn, first)
    assert {status_of(conn, job_id) for job_id in waiting} == {"queued"}
    assert left_over(conn) == []


def test_of_thousands_of_dependants_a_slice_is_released_at_once_and_all_in_the_end(conn: Conn) -> None:
    first = claimed(conn)
    many_waiting_for(conn, first.id, 5 * SLICE)
    assert complete(conn, first)
    assert (count(conn, "queued"), count(conn, "uploaded")) == (SLICE, 4 * SLICE)
    assert release_all(conn) == 5  # the last one finds that nothing is left
    assert (count(conn, "queued"), count(conn, "uploaded")) == (5 * SLICE, 0)
    assert left_over(conn) == []
    released = one(conn, "SELECT count(*), count(DISTINCT job_id) AS jobs FROM job_events WHERE event_type = 'queued'"
                         " AND meta = '{\"by\": \"dependencies\"}'")  # fmt: skip
    assert released == {"count": 5 * SLICE, "jobs": 5 * SLICE}


@pytest.mark.parametrize("dependants", [SLICE, SLICE + 1])
def test_the_slice_is_full_at_its_bound(conn: Conn, dependants: int) -> None:
    first = claimed(conn)
    many_waiting_for(conn, first.id, dependants)
    complete(conn, first)
    assert count(conn, "uploaded") == dependants - SLICE == len(left_over(conn))


def test_a_locked_one_among_thousands_is_tried_once_in_a_pass(conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    many_waiting_for(conn, first.id, 3 * SLICE)
    job_id = one(conn, "SELECT id FROM jobs WHERE status = 'uploaded' ORDER BY id OFFSET 1500 LIMIT 1")["id"]
    with locked(connect, job_id):
        complete(conn, first)
        release_all(conn)
        assert left_over(conn) == [job_id]
        assert count(conn, "uploaded") == 1
    release_all(conn)
    assert count(conn, "uploaded") == 0


def test_two_workers_at_once_release_each_once(conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    many_waiting_for(conn, first.id, 4 * SLICE)
    complete(conn, first)
    here, there = connect(), connect()
    together(lambda: release_all(here), lambda: release_all(there))
    release_all(conn)
    assert (count(conn, "queued"), left_over(conn)) == (4 * SLICE, [])
    assert (
        one(conn, "SELECT count(*) FROM job_events WHERE event_type = 'queued' AND meta ? 'by'")["count"] == 4 * SLICE
    )


def test_what_waits_for_another_job_too_goes_on_waiting(conn: Conn, connect: Connect) -> None:
    first, second = claimed(conn), claimed(conn)
    both = waiting_for(conn, first.id, second.id)
    with locked(connect, both):
        complete(conn, first)
    release_all(conn)
    assert (status_of(conn, both), left_over(conn)) == ("uploaded", [])
    complete(conn, second)
    assert status_of(conn, both) == "queued"


def test_of_two_that_complete_at_once_one_may_take_long_to_commit(conn: Conn, connect: Connect) -> None:
    """The first has locked the dependant and does not see the second, which gives up waiting for that lock."""
    first, second = claimed(conn), claimed(conn)
    third = waiting_for(conn, first.id, second.id)
    other = connect()
    with conn.transaction():
        complete(conn, first)
        later = begin(lambda: complete(other, second))
        wait_until_blocked(connect(), other)
        assert later.result(10)
        assert queue(other).release_dependants(None) is None
    assert (status_of(conn, third), left_over(conn)) == ("uploaded", [third])
    release_all(conn)
    assert (status_of(conn, third), left_over(conn)) == ("queued", [])


def test_a_dependency_that_runs_again_releases_nobody_before_its_end(conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    job_id = waiting_for(conn, first.id)
    with locked(connect, job_id):
        complete(conn, first)
    conn.execute("UPDATE jobs SET status = 'queued', result_path = NULL WHERE id = %s", [first.id])
    release_all(conn)
    assert (status_of(conn, job_id), left_over(conn)) == ("uploaded", [])


def test_a_dependant_that_failed_or_was_queued_meanwhile_is_left_alone(conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    failed, queued = waiting_for(conn, first.id), waiting_for(conn, first.id)
    with locked(connect, failed), locked(connect, queued):
        complete(conn, first)
    conn.execute("UPDATE jobs SET status = 'failed', error_code = 'FORBIDDEN' WHERE id = %s", [failed])
    conn.execute("UPDATE jobs SET status = 'queued' WHERE id = %s", [queued])
    release_all(conn)
    assert (status_of(conn, failed), status_of(conn, queued)) == ("failed", "queued")
    assert events_of(conn, queued) == ["created", "queued"]
    assert left_over(conn) == []


def test_what_one_completion_left_locked_does_not_hide_the_rest_that_the_next_one_leaves(
    conn: Conn, connect: Connect
) -> None:
    """A dependency that ran again: its locked dependant of the first time is where the rest of the second begins."""
    first = claimed(conn)
    many_waiting_for(conn, first.id, SLICE + 2)
    rest = one(conn, "SELECT id FROM jobs WHERE status = 'uploaded' ORDER BY id OFFSET %s LIMIT 1", SLICE)["id"]
    conn.execute("INSERT INTO dependants_to_release VALUES (%s, %s, %s)", [first.id, rest, rest])
    complete(conn, first)
    release_all(conn)
    assert (count(conn, "queued"), left_over(conn)) == (SLICE + 2, [])


def test_nothing_left_is_one_empty_pass(conn: Conn) -> None:
    assert release_all(conn) == 1


def test_show_says_that_a_released_dependant_waits_for_no_job(
    conn: Conn, connect: Connect, environment: Environment
) -> None:
    first = claimed(conn)
    job_id = waiting_for(conn, first.id)
    with locked(connect, job_id):
        complete(conn, first)
    shown = run_convertq("show", str(job_id), "--json", environment=environment())
    explanation = json.loads(shown.stdout)["explanation"]
    assert explanation == "every job that it waited for is complete: a worker queues it within seconds"
