"""Dependencies: a job is queued by the very transaction that completes the last one."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Connect
from tests.jobs import (
    Conn,
    begin,
    claim,
    claimed,
    complete,
    events_of,
    fail,
    insert_job,
    one,
    run,
    status_of,
    together,
    wait_until_blocked,
)


def waiting_for(conn: Conn, *needed: UUID) -> UUID:
    with conn.transaction():
        job = insert_job(conn, "uploaded")
        for other in needed:
            run(conn, "add_dependency", id=job, depends_on=other)
    return job


def test_a_job_waits_until_its_dependency_is_complete(conn: Conn) -> None:
    first = claimed(conn)
    second = waiting_for(conn, first.id)
    assert status_of(conn, second) == "uploaded"
    assert complete(conn, first)
    assert status_of(conn, second) == "queued"
    assert events_of(conn, second) == ["created", "queued"]


def test_its_event_says_what_queued_it(conn: Conn) -> None:
    first, done = claimed(conn), claimed(conn)
    complete(conn, done)
    early, late = waiting_for(conn, first.id), waiting_for(conn, done.id)
    complete(conn, first)
    query = "SELECT DISTINCT meta FROM job_events WHERE job_id = ANY (%s) AND event_type = 'queued'"
    assert one(conn, query, [early, late])["meta"] == {"by": "dependencies"}


def test_a_job_waits_for_the_last_of_them(conn: Conn) -> None:
    first, second = claimed(conn), claimed(conn)
    third = waiting_for(conn, first.id, second.id)
    complete(conn, second)
    assert status_of(conn, third) == "uploaded"
    complete(conn, first)
    assert status_of(conn, third) == "queued"


def test_it_is_released_in_the_very_transaction(conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    second = waiting_for(conn, first.id)
    other = connect()
    with conn.transaction():
        complete(conn, first)
        assert status_of(conn, second) == "queued"
        assert (status_of(other, first), status_of(other, second)) == ("processing", "uploaded")
    assert (status_of(other, first), status_of(other, second)) == ("complete", "queued")


def test_all_that_wait_for_one_are_released_and_no_others(conn: Conn) -> None:
    first, other = claimed(conn), claimed(conn)
    waiting = [waiting_for(conn, first.id) for _ in range(3)]
    still = waiting_for(conn, other.id)
    complete(conn, first)
    assert [status_of(conn, job) for job in [*waiting, still]] == ["queued", "queued", "queued", "uploaded"]


def test_a_chain_goes_on_step_by_step(conn: Conn) -> None:
    first = claimed(conn)
    second = waiting_for(conn, first.id)
    third = waiting_for(conn, second)
    complete(conn, first)
    assert status_of(conn, third) == "uploaded"
    complete(conn, claim(conn))
    assert status_of(conn, third) == "queued"


def test_a_dependency_that_is_complete_already_holds_nothing_up(conn: Conn) -> None:
    assert status_of(conn, waiting_for(conn, insert_job(conn, "complete"))) == "queued"


def test_two_complete_ones_queue_it_with_one_event(conn: Conn) -> None:
    job = waiting_for(conn, insert_job(conn, "complete"), insert_job(conn, "complete"))
    assert events_of(conn, job) == ["created", "queued"]


def test_one_complete_and_one_not_leaves_it_waiting(conn: Conn) -> None:
    assert status_of(conn, waiting_for(conn, insert_job(conn, "complete"), insert_job(conn))) == "uploaded"


def test_a_failed_dependency_keeps_it_waiting_and_its_retry_releases_it(conn: Conn) -> None:
    first = claimed(conn)
    second = waiting_for(conn, first.id)
    fail(conn, first)
    assert status_of(conn, second) == "uploaded"
    assert run(conn, "get_job", id=second)[0]["waits_for"] == [first.id]
    run(conn, "retry_jobs", ids=[first.id])
    complete(conn, claim(conn))
    assert status_of(conn, second) == "queued"
    assert run(conn, "get_job", id=second)[0]["waits_for"] == []


def test_a_dependant_that_failed_meanwhile_is_left_alone(conn: Conn) -> None:
    first = claimed(conn)
    second = waiting_for(conn, first.id)
    conn.execute("UPDATE jobs SET status = 'failed', error_code = 'FORBIDDEN' WHERE id = %s", [second])
    complete(conn, first)
    assert status_of(conn, second) == "failed"


def test_the_same_dependency_twice_is_one(conn: Conn) -> None:
    first = claimed(conn)
    second = waiting_for(conn, first.id, first.id)
    complete(conn, first)
    assert status_of(conn, second) == "queued"


@pytest.mark.parametrize("length", [2, 3, 6])
def test_a_cycle_is_refused(conn: Conn, length: int) -> None:
    jobs = [insert_job(conn, "uploaded") for _ in range(length)]
    for job, needed in pairwise(jobs):
        run(conn, "add_dependency", id=job, depends_on=needed)
    with pytest.raises(psycopg.errors.CheckViolation, match="that would be a cycle") as refused:
        run(conn, "add_dependency", id=jobs[-1], depends_on=jobs[0])
    assert refused.value.diag.constraint_name == "dependencies_have_no_cycle"


def test_a_diamond_is_no_cycle(conn: Conn) -> None:
    bottom = claimed(conn)
    left, right = waiting_for(conn, bottom.id), waiting_for(conn, bottom.id)
    top = waiting_for(conn, left, right)
    complete(conn, bottom)
    complete(conn, claim(conn))
    assert status_of(conn, top) == "uploaded"
    complete(conn, claim(conn))
    assert status_of(conn, top) == "queued"


def test_an_update_cannot_close_a_cycle_either(conn: Conn) -> None:
    a, b, c = (insert_job(conn, "uploaded") for _ in range(3))
    run(conn, "add_dependency", id=a, depends_on=b)
    run(conn, "add_dependency", id=b, depends_on=c)
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE job_dependencies SET depends_on = %s WHERE job_id = %s", [a, b])


def test_two_halves_of_a_cycle_at_once_are_not_both_taken(conn: Conn, connect: Connect) -> None:
    a, b = insert_job(conn, "uploaded"), insert_job(conn, "uploaded")
    second = connect()
    with conn.transaction():
        run(conn, "add_dependency", id=a, depends_on=b)
        half = begin(lambda: run(second, "add_dependency", id=b, depends_on=a))
        wait_until_blocked(connect(), second)
    with pytest.raises(psycopg.errors.CheckViolation):
        half.result(10)


def test_two_completing_at_once_release_it_once(conn: Conn, connect: Connect) -> None:
    for _ in range(10):
        first, second = claimed(conn), claimed(conn)
        third = waiting_for(conn, first.id, second.id)
        here, there = connect(), connect()
        assert together(lambda: complete(here, first), lambda: complete(there, second)) == [True, True]  # noqa: B023
        assert events_of(conn, third) == ["created", "queued"]
        complete(conn, claim(conn))


def test_the_second_to_complete_waits_for_the_first_and_sees_it(conn: Conn, connect: Connect) -> None:
    first, second = claimed(conn), claimed(conn)
    third = waiting_for(conn, first.id, second.id)
    other = connect()
    with conn.transaction():
        complete(conn, first)
        later = begin(lambda: complete(other, second))
        wait_until_blocked(connect(), other)
    assert later.result(10)
    assert status_of(conn, third) == "queued"


def test_a_job_that_comes_while_its_dependency_completes_does_not_wait_for_ever(conn: Conn, connect: Connect) -> None:
    first = claimed(conn)
    other = connect()
    with conn.transaction():
        complete(conn, first)
        late = begin(lambda: waiting_for(other, first.id))
        wait_until_blocked(connect(), other)
    assert status_of(conn, late.result(10)) == "queued"


def test_a_completion_that_comes_while_a_job_is_written_releases_it(conn: Conn, connect: Connect) -> None:
    for _ in range(10):
        first = claimed(conn)
        here, there = connect(), connect()
        done, second = together(lambda: complete(here, first), lambda: waiting_for(there, first.id))  # noqa: B023
        assert done is True
        assert isinstance(second, UUID)
        assert status_of(conn, second) == "queued"
        complete(conn, claim(conn))


def test_another_program_cannot_queue_a_job_before_what_it_waits_for(conn: Conn) -> None:
    needed = insert_job(conn)
    waiting = insert_job(conn, status="uploaded")
    conn.execute("INSERT INTO job_dependencies VALUES (%s, %s)", [waiting, needed])
    with pytest.raises(psycopg.errors.CheckViolation, match="waits for another job"):
        conn.execute("UPDATE jobs SET status = 'queued' WHERE id = %s", [waiting])


def test_a_job_that_is_queued_already_cannot_be_made_to_wait(conn: Conn) -> None:
    needed, queued = insert_job(conn), insert_job(conn)
    with pytest.raises(psycopg.errors.CheckViolation, match="past the point"):
        conn.execute("INSERT INTO job_dependencies VALUES (%s, %s)", [queued, needed])
