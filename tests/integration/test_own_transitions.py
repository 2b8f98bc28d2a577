"""Only the worker's own statements pass by the triggers, and that nothing is lost by it."""

from __future__ import annotations

from typing import Any, LiteralString

from tests.conftest import Connect
from tests.jobs import (
    Conn,
    begin,
    claim,
    claimed,
    complete,
    events_of,
    insert_job,
    one,
    row_of,
    run,
    set_status,
    status_of,
    wait_until_blocked,
)


def test_a_claim_and_a_completion_call_no_trigger(conn: Conn) -> None:
    conn.execute("SET track_functions = 'pl'")
    with conn.transaction():
        job = claimed(conn)
        called = "SELECT coalesce(sum(calls), 0) AS calls FROM pg_stat_xact_user_functions WHERE funcname IN {}"
        query: Any = called.format("('guard_job', 'follow_transition')")
        before = one(conn, query)["calls"]
        assert complete(conn, job)
        assert one(conn, query)["calls"] == before
    assert row_of(conn, job)["own_transitions"] == 2
    assert events_of(conn, job) == ["created", "queued", "processing", "complete"]


def test_what_they_do_by_themselves_is_what_the_triggers_do_for_others(conn: Conn) -> None:
    """Events, state and updated_at are those of the same transitions as another program makes them."""
    job = claimed(conn)
    claimed_at = row_of(conn, job)["updated_at"]
    complete(conn, job)
    row = row_of(conn, job)
    other = insert_job(conn)
    set_status(conn, other, "processing")
    set_status(conn, other, "complete")
    assert events_of(conn, job) == events_of(conn, other)
    assert claimed_at < row["updated_at"]
    assert row["run"] == row_of(conn, other)["run"]


def test_a_row_that_is_written_back_as_it_was_read_calls_the_triggers(conn: Conn) -> None:
    """As an ORM does that saves every column: own_transitions has moved on meanwhile, and must not go back."""
    job = insert_job(conn)
    stale = row_of(conn, job)["own_transitions"]
    run(conn, "requeue_job", **claim(conn).fence, reason="shutdown", delay_ms=0, gateway_status=None, gateway=None)
    moved = row_of(conn, job)["own_transitions"]
    assert moved > stale
    change: LiteralString = "UPDATE jobs SET status = 'failed', error_code = 'X', own_transitions = %s WHERE id = %s"
    conn.execute(change, [stale, job])
    assert row_of(conn, job)["own_transitions"] == moved
    assert events_of(conn, job)[-1] == "failed"


def test_a_new_row_cannot_begin_beyond_the_triggers(conn: Conn) -> None:
    job = row_of(conn, insert_job(conn, own_transitions=7, needs_follow_up=True))
    assert (job["own_transitions"], job["needs_follow_up"]) == (0, False)
    assert events_of(conn, job["id"]) == ["created", "queued"]


def test_nobody_can_hide_a_jobs_dependants_from_its_completion(conn: Conn) -> None:
    job = claimed(conn)
    with conn.transaction():
        dependant = insert_job(conn, "uploaded")
        run(conn, "add_dependency", id=dependant, depends_on=job.id)
    conn.execute("UPDATE jobs SET needs_follow_up = false")
    complete(conn, job)
    assert status_of(conn, dependant) == "queued"


def test_a_completion_that_waited_for_a_new_dependant_releases_it(conn: Conn, connect: Connect) -> None:
    """Its snapshot is older than the dependant: it learns of it from the row that it has waited for."""
    job, writer, worker = claimed(conn), connect(), connect()
    writer.execute("BEGIN")
    dependant = insert_job(writer, "uploaded")
    run(writer, "add_dependency", id=dependant, depends_on=job.id)
    writer.execute("SET CONSTRAINTS ALL IMMEDIATE")
    completing = begin(lambda: complete(worker, job))
    wait_until_blocked(conn, worker)
    writer.execute("COMMIT")
    assert completing.result(10)
    assert status_of(conn, dependant) == "queued"


def test_a_link_that_is_changed_to_another_job_is_released_by_that_one(conn: Conn) -> None:
    first, second = claimed(conn), claimed(conn)
    with conn.transaction():
        dependant = insert_job(conn, "uploaded")
        run(conn, "add_dependency", id=dependant, depends_on=first.id)
    conn.execute("UPDATE job_dependencies SET depends_on = %s", [second.id])
    complete(conn, second)
    assert status_of(conn, dependant) == "queued"


def test_progress_ends_with_its_attempt(conn: Conn) -> None:
    job = claimed(conn)
    progress = {"step": "reading", "percent": 1, "bytes_done": 1, "bytes_total": 2, "message": None}
    assert run(conn, "report_progress", **job.fence, lease_ttl=9, **progress)
    complete(conn, job)
    assert conn.execute("SELECT FROM job_progress").fetchall() == []


def test_a_job_that_a_completed_one_needs_again_is_released_by_its_next_run(conn: Conn) -> None:
    """The link is older than the second run of the job that it names."""
    first, other = claimed(conn), claimed(conn)
    complete(conn, first)
    with conn.transaction():
        dependant = insert_job(conn, "uploaded")
        for needed in (first, other):
            run(conn, "add_dependency", id=dependant, depends_on=needed.id)
    conn.execute("UPDATE jobs SET status = 'queued', result_path = NULL WHERE id = %s", [first.id])
    complete(conn, other)
    assert status_of(conn, dependant) == "uploaded"
    complete(conn, claim(conn))
    assert status_of(conn, dependant) == "queued"
