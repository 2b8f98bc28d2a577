"""The time before which a job must not begin, and its deadline, for every writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from convertq.queue.counters import Counters

from tests.conftest import Connect, Dirs, Environment, Supervisor
from tests.integration.conftest import Place
from tests.jobs import (
    PDF,
    Conn,
    claim,
    claimed,
    complete,
    cursor,
    database,
    events_of,
    fail,
    insert_job,
    last_event,
    queued_job,
    retry_later,
    row_of,
    run,
    set_breaker,
    status_of,
    try_claim,
)
from tests.processes import run as run_convertq
from tests.waiting import wait_for_row
from tests.web_client import PDF as WEB_PDF
from tests.web_client import Visitor, error_of

LATE = {"deadline": "yesterday"}


def pass_time(conn: Conn, job_id: UUID) -> None:
    """The time before which it must not begin has come."""
    conn.execute("UPDATE jobs SET not_before = not_before - interval '2 days' WHERE id = %s", [job_id])
    conn.execute("UPDATE jobs SET retry_after = not_before WHERE id = %s", [job_id])


# -- not before --


def test_a_job_is_not_claimed_before_its_time_for_any_writer(conn: Conn) -> None:
    job_id = insert_job(conn, not_before="tomorrow")
    assert row_of(conn, job_id)["retry_after"] == row_of(conn, job_id)["not_before"]
    assert try_claim(conn).job is None
    pass_time(conn, job_id)
    cursor(conn).promote_due_jobs()
    assert claim(conn).id == job_id
    assert events_of(conn, job_id) == ["created", "queued", "processing"]


def test_a_time_that_has_come_already_delays_nothing(conn: Conn) -> None:
    job_id = insert_job(conn, not_before="yesterday")
    assert row_of(conn, job_id)["retry_after"] is None
    assert claim(conn).id == job_id


def test_a_dependant_waits_for_its_time_too(conn: Conn) -> None:
    needed = insert_job(conn)
    job_id = insert_job(conn, "uploaded", not_before="tomorrow")
    conn.execute("INSERT INTO job_dependencies VALUES (%s, %s)", [job_id, needed])
    assert complete(conn, claim(conn))
    assert status_of(conn, job_id) == "queued"
    assert try_claim(conn).job is None


def test_a_job_that_waits_for_its_time_does_not_make_the_queue_old(conn: Conn) -> None:
    insert_job(conn, not_before="tomorrow", queued_at="yesterday")
    assert run(conn, "get_queue_age")[0]["seconds"] is None
    insert_job(conn, not_before="yesterday", queued_at="yesterday")
    assert run(conn, "get_queue_age")[0]["seconds"] > 0
    assert run(conn, "list_last_errors", states=["retrying"], limit=5) == []


# -- the deadline --


def test_a_job_whose_deadline_has_passed_is_not_claimed_and_fails(conn: Conn) -> None:
    queued, uploaded = insert_job(conn, **LATE), insert_job(conn, "uploaded", **LATE)
    retried, running = insert_job(conn, retry_after="tomorrow", **LATE), insert_job(conn, deadline="tomorrow")
    assert claim(conn).id == running
    conn.execute("UPDATE jobs SET deadline = 'yesterday' WHERE id = %s", [running])
    assert try_claim(conn).job is None
    assert {row["id"] for row in run(conn, "expire_jobs")} == {queued, uploaded, retried}
    assert run(conn, "expire_jobs") == []
    for job_id, origin in ((queued, "queued"), (uploaded, "uploaded"), (retried, "queued")):
        row = row_of(conn, job_id)
        assert (row["status"], row["error_code"], row["dead_letter"]) == ("failed", "EXPIRED", False)
        assert (row["retry_after"], row["error_message"]) == (
            None,
            "the deadline passed before the first attempt could begin",
        )
        assert last_event(conn, job_id)["meta"]["from"] == origin
    assert status_of(conn, running) == "processing"
    counters = Counters(database(conn))
    assert [counters("jobs", status) for status in ("uploaded", "queued", "processing", "failed")] == [0, 0, 1, 3]


def test_an_attempt_that_fails_after_the_deadline_is_the_last(conn: Conn) -> None:
    job = claimed(conn, deadline="tomorrow")
    conn.execute("UPDATE jobs SET deadline = 'yesterday' WHERE id = %s", [job.id])
    assert retry_later(conn, job, delay_ms=0)
    assert [row["attempt"] for row in run(conn, "expire_jobs")] == [1]
    assert row_of(conn, job)["error_message"] == "the deadline passed before another attempt could begin"


def test_a_claim_and_the_deadline_do_not_wait_for_each_other(conn: Conn, connect: Connect) -> None:
    """The first to lock the row wins, and the other skips it."""
    job_id, other = insert_job(conn, deadline="tomorrow"), connect()
    with conn.transaction():
        assert claim(conn).id == job_id
        conn.execute("UPDATE jobs SET deadline = now() - interval '1 s' WHERE id = %s", [job_id])
        assert run(other, "expire_jobs") == []
    assert run(other, "expire_jobs") == []
    assert status_of(conn, job_id) == "processing"
    late = insert_job(conn, **LATE)
    with other.transaction():
        assert [row["id"] for row in run(other, "expire_jobs")] == [late]
        assert try_claim(conn).job is None
    assert status_of(conn, late) == "failed"


def test_a_supervisor_fails_late_jobs_also_while_nothing_is_claimed(conn: Conn, supervisor: Supervisor) -> None:
    set_breaker(conn, "open", by_hand=True)
    process = supervisor(WORKER_CONCURRENCY=1)
    process.wait_for_event("ready")
    job_id = insert_job(conn, deadline="now")
    wait_for_row(conn, "SELECT id FROM jobs WHERE id = %s AND error_code = 'EXPIRED'", [job_id])
    line = process.wait_for_event("failed")
    assert (line["job_id"], line["error_code"], line["dead_letter"]) == (str(job_id), "EXPIRED", False)


# -- what clears them --


def test_a_manual_retry_and_a_resubmission_clear_both(
    conn: Conn, dirs: Dirs, environment: Environment, tmp_path: Path
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)

    def submit(*options: str) -> Any:
        done = run_convertq("submit", *options, str(path), environment=environment())
        assert done.returncode == 0, done.stderr
        return row_of(conn, UUID(done.stdout.strip()))

    def expire(job_id: UUID) -> None:
        conn.execute("UPDATE jobs SET deadline = 'yesterday' WHERE id = %s", [job_id])
        assert run(conn, "expire_jobs")

    first = submit("--not-before", "+1h", "--deadline", "+2h")
    assert first["retry_after"] == first["not_before"] < first["deadline"]
    expire(first["id"])
    assert run_convertq("retry", str(first["id"]), environment=environment()).returncode == 0
    row = row_of(conn, first["id"])
    assert (row["status"], row["not_before"], row["deadline"], row["retry_after"]) == ("queued", None, None, None)
    expire(first["id"])
    again = submit()
    assert (again["id"], again["not_before"], again["deadline"]) == (first["id"], None, None)
    expire(first["id"])
    assert submit("--deadline", "2999-01-01T00:00:00Z")["deadline"].year == 2999
    expire(first["id"])
    conn.execute("UPDATE jobs SET status = 'queued', error_code = NULL WHERE id = %s", [first["id"]])
    assert row_of(conn, first["id"])["deadline"] is None  # or another program's retry would fail at once


# -- commands, the API and the pages --


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--not-before", "2020-01-01T00:00:00Z"], "not_before is in the past"),
        (["--deadline", "+0s"], "deadline is in the past"),
        (["--not-before", "+2h", "--deadline", "+1h"], "deadline must be after not_before"),
        (["--deadline", "soon"], "--deadline: 'soon' is not a time"),
        (["--deadline", "+999999999d"], "a time from now may be at most"),
    ],
)
def test_a_time_that_makes_no_sense_is_wrong_usage_and_submits_nothing(
    conn: Conn, environment: Environment, tmp_path: Path, options: list[str], reason: str
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    done = run_convertq("submit", *options, str(path), environment=environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert conn.execute("SELECT FROM jobs").fetchall() == []


def test_the_api_takes_both_times_and_refuses_those_that_make_no_sense(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(WEB_PDF + b"later", not_before="+1h", deadline="2999-01-01T00:00:00+01:00")
    job = visitor.get(f"/api/jobs/{job_id}").json()
    assert (job["display"]["word"], job["display"]["until"]) == ("Scheduled", job["not_before"])
    assert job["retry_after"] == job["not_before"]
    assert job["why"] == "Waits until the time before which it must not begin"
    for fields, reason in (
        ({"deadline": "+0m"}, "deadline is in the past"),
        ({"not_before": "2020-01-01T00:00:00Z"}, "not_before is in the past"),
        ({"deadline": "2999-01-01"}, "is not a time"),
        ({"not_before": "+2h", "deadline": "+1h"}, "deadline must be after not_before"),
    ):
        refused = visitor.submit(WEB_PDF + b"never", **fields)
        assert error_of(refused) == (400, "BAD_REQUEST")
        assert reason in refused.json()["error"]["message"]
    place.conn.execute("UPDATE jobs SET deadline = 'yesterday' WHERE id = %s", [job_id])
    assert run(place.conn, "expire_jobs")
    late = visitor.get(f"/api/jobs/{job_id}").json()
    assert (late["error_code"], late["can_retry"], late["display"]["detail"]) == ("EXPIRED", True, "before it began")
    assert late["display"]["help"]["what"] == "It could not be converted in time."
    assert visitor.post(f"/api/jobs/{job_id}/retry").json()["deadline"] is None


def test_a_wait_is_ended_by_hand_and_everything_else_is_refused(
    conn: Conn, dirs: Dirs, environment: Environment
) -> None:
    def now(*ids: UUID) -> list[tuple[bool, str | None]]:
        done = run_convertq("retry", "--now", *map(str, ids), "--json", environment=environment())
        codes.append(done.returncode)
        return [(line["queued"], line["reason"]) for line in map(json.loads, done.stdout.splitlines())]

    codes: list[int] = []
    job = claimed(conn)
    assert retry_later(conn, job)
    scheduled = queued_job(conn, dirs, not_before="tomorrow")
    text = run_convertq("show", str(scheduled), environment=environment()).stdout
    assert "before which it must not begin" in " ".join(text.split())
    assert now(job.id, scheduled) == [(True, None), (True, None)]
    event = last_event(conn, job)
    assert (event["event_type"], event["meta"]["reason"]) == ("retry", "now")
    assert [row_of(conn, each)["retry_after"] for each in (job.id, scheduled)] == [None, None]
    counters = Counters(database(conn))
    assert (counters("jobs", "queued"), counters("retries")) == (2, 1)
    assert sum(row["retries"] for row in run(conn, "count_minutes", minutes=5)) == 1
    assert now(job.id)[0][1] == "it does not wait: the next free worker takes it in its turn"
    assert fail(conn, claim(conn))
    failed = job.id if status_of(conn, job) == "failed" else scheduled
    assert now(failed)[0][1] == "it is failed; only a queued job can wait for its next attempt"
    assert now(UUID(int=1))[0][1] == "no such job"
    assert codes == [0, 4, 4, 3]
    wrong = run_convertq("retry", "--now", "--failed", environment=environment())
    assert (wrong.returncode, "--now takes job ids" in wrong.stderr) == (2, True)
