"""When a job will probably be done: positions, what has no estimate, what is measured, and how good estimates were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from convertq.queue.estimate_upkeep import MARKED_JOBS, SCORES, get_covered_ratio, measure
from convertq.queue.estimates import MOST_COUNTED_JOBS, Estimate, as_document, estimate_jobs
from convertq.queue.metrics import metrics_text
from convertq.queue.pauses import Scope, end_pauses, start_pause
from convertq.queue.queue_events import Operator

from tests.conftest import Connect, Environment
from tests.integration.conftest import Place
from tests.jobs import (
    Conn,
    begin,
    claim,
    claimed,
    complete,
    config,
    database,
    insert_job,
    one,
    register_server,
    retry_later,
    run,
    set_breaker,
)
from tests.processes import run as run_convertq
from tests.waiting import WAIT_SECONDS
from tests.web_client import Visitor

ME = Operator("me@here")


def estimate(conn: Conn, job_id: UUID) -> Estimate | None:
    return estimate_jobs(database(conn), config(), [job_id]).estimates.get(job_id)


def position(conn: Conn, job_id: UUID) -> int:
    return estimate_jobs(database(conn), config(), [job_id]).positions[job_id]


def measure_now(conn: Conn) -> bool:
    """As if the pause since the last turn were over."""
    conn.execute("UPDATE estimate_state SET next_at = now(), marks_due_at = now(), history_due_at = now()")
    return measure(database(conn), config())


def converted(conn: Conn, seconds: float, **columns: Any) -> UUID:
    """A job whose only attempt took so long."""
    job = claimed(conn, **columns)
    job.begun_at -= seconds
    assert complete(conn, job)
    return job.id


def test_a_job_that_was_claimed_since_it_was_read_was_the_first_of_the_queue(conn: Conn) -> None:
    register_server(conn)
    found = estimate(conn, claimed(conn).id)
    by_status = {status: as_document(found, status) for status in ("queued", "processing")}
    assert {status: each and each["position"] for status, each in by_status.items()} == {
        "queued": 1,
        "processing": None,
    }


def test_a_job_has_an_estimate_only_while_it_can_be_converted(bounded: Conn) -> None:
    conn = bounded
    job_id = insert_job(conn, owner_session_id="anna")
    assert estimate(conn, job_id) is None  # no worker is active
    register_server(conn)
    waiting = estimate(conn, job_id)
    assert waiting is not None
    assert waiting.position == 1
    assert waiting.starts_at <= waiting.done_at < waiting.done_by

    for scope in (Scope(), Scope(gateway="default"), Scope(owner="anna")):
        start_pause(database(conn), scope, ME)
        assert estimate(conn, job_id) is None
        end_pauses(database(conn), scope, ME)
    for state in ("open", "half_open"):
        set_breaker(conn, state)
        assert estimate(conn, job_id) is None
    set_breaker(conn, "closed")
    conn.execute("UPDATE servers SET last_heartbeat_at = 'yesterday'")
    assert estimate(conn, job_id) is None
    conn.execute("UPDATE servers SET last_heartbeat_at = now()")
    assert estimate(conn, insert_job(conn, retry_after="infinity")) is None
    assert [estimate(conn, insert_job(conn, status)) for status in ("uploaded", "complete", "failed", "cancelled")] == (
        [None] * 4
    )

    running = claim(conn)
    assert running.id == job_id
    set_breaker(conn, "open")  # of a job that has been let through, the breaker says nothing
    said = estimate(conn, job_id)
    assert said is not None
    assert said.position is None
    assert said.starts_at < said.done_at < said.done_by


def test_a_job_that_must_not_begin_yet_begins_when_its_time_has_come(bounded: Conn) -> None:
    conn = bounded
    register_server(conn)
    tomorrow: datetime = one(conn, "SELECT now() + interval '1 day' AS at")["at"]
    job_id = insert_job(conn, not_before=tomorrow)
    said = estimate(conn, job_id)
    assert said is not None
    assert abs(said.starts_at - tomorrow) < timedelta(seconds=1)
    assert tomorrow < said.done_at < said.done_by < tomorrow + timedelta(hours=1)
    far = insert_job(conn, not_before="9998-12-31 23:59:59+00")
    assert estimate(conn, far) is not None
    assert estimate(conn, insert_job(conn, retry_after="20000-01-01")) is None


@contextmanager
def without_triggers(conn: Conn) -> Iterator[None]:
    conn.execute("SET session_replication_role = replica")
    yield
    conn.execute("RESET session_replication_role")


def insert_queue(conn: Conn, number: int) -> None:
    with without_triggers(conn):
        conn.execute(
            "INSERT INTO jobs (bytes, sha256, status, queued_at, created_at) SELECT 1, repeat('0', 64), 'queued',"
            " now(), now() + n * interval '1 us' FROM generate_series(1, %s) AS n",
            [number],
        )


def test_a_position_is_exact_up_to_a_thousand_and_near_beyond(conn: Conn) -> None:
    register_server(conn)
    insert_queue(conn, MOST_COUNTED_JOBS - 1)
    last = insert_job(conn, created_at="tomorrow")
    assert position(conn, last) == MOST_COUNTED_JOBS
    insert_job(conn, priority=1)
    assert position(conn, last) == MOST_COUNTED_JOBS + 1

    insert_queue(conn, 4000)
    measure_now(conn)
    assert one(conn, "SELECT max(place) AS place FROM queue_marks")["place"] == 5000
    insert_queue(conn, 300)  # the marks are older than these
    assert position(conn, last) == pytest.approx(5301, abs=260)
    first = "SELECT id FROM jobs WHERE priority = 0 ORDER BY created_at LIMIT 2000"
    with without_triggers(conn):
        conn.execute(f"DELETE FROM jobs WHERE id IN ({first})".encode())
    assert position(conn, last) == pytest.approx(3301, abs=260)
    with without_triggers(conn):
        conn.execute("DELETE FROM jobs WHERE id <> %s", [last])
    assert position(conn, last) == 1
    insert_job(conn, "uploaded")  # without an event, nothing is measured
    assert measure_now(conn)
    assert not conn.execute("SELECT FROM queue_marks").fetchall()
    assert run(conn, "measure_queue", at_most=MARKED_JOBS)[0]["marks"] == 0


def test_times_are_measured_by_mapping_and_size_and_estimates_follow_them(conn: Conn) -> None:
    register_server(conn)
    for _ in range(15):
        converted(conn, 100.0, mapping="slow", bytes=3_000_000)
        converted(conn, 1.0, mapping="slow", bytes=3000)
    foreign = claimed(conn)  # another program completes it, and says nothing of its duration
    conn.execute("INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'complete', '{}')", [foreign.id])
    measure_now(conn)
    found = {(row["mapping"], row["size_class"]): row for row in conn.execute("SELECT * FROM service_times")}
    assert set(found) == {("slow", 22), ("slow", 12)}
    assert found["slow", 22]["weight"] == 15
    assert found["slow", 22]["work_seconds"] == pytest.approx(100, rel=0.01)

    def seconds_of(job_id: UUID) -> float:
        now, said = one(conn, "SELECT now() AS now")["now"], estimate(conn, job_id)
        assert said is not None
        return float((said.done_at - now).total_seconds())

    conn.execute("DELETE FROM estimate_state")
    conn.execute("INSERT INTO estimate_state DEFAULT VALUES")  # without the factors that were learned
    set_status = "UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN', failed_at = now(), leased_by = NULL, "
    conn.execute(f"{set_status} lease_expires_at = NULL WHERE id = %s".encode(), [foreign.id])
    big = seconds_of(insert_job(conn, mapping="slow", bytes=3_100_000, priority=9))
    conn.execute("UPDATE servers SET concurrency = 9")
    small = seconds_of(insert_job(conn, mapping="slow", bytes=3100, priority=9))
    assert big > 5 * small


def test_a_retry_is_measured_with_its_delay(conn: Conn) -> None:
    job = claimed(conn)
    retry_later(conn, job, delay_ms=0)
    conn.execute("UPDATE jobs SET retry_after = NULL, started_at = now() - interval '60 s' WHERE id = %s", [job.id])
    assert complete(conn, claim(conn))
    measure_now(conn)
    row = one(conn, "SELECT retried, retry_seconds FROM service_times")
    assert row["retried"] == 1
    assert row["retry_seconds"] == pytest.approx(60, abs=5)


def test_estimates_of_a_sample_of_new_jobs_are_scored_and_the_metric_is_their_share(conn: Conn) -> None:
    def ratio() -> float | None:
        return get_covered_ratio(database(conn))

    register_server(conn)
    ids = [insert_job(conn) for _ in range(5)]
    measure_now(conn)
    assert one(conn, "SELECT count(*) AS number FROM estimate_samples")["number"] == 5
    assert ratio() is None
    assert b"convertq_estimate_covered_ratio" not in metrics_text(database(conn), config())

    conn.execute("UPDATE estimate_samples SET done_by = estimated_at - interval '1 s' WHERE job_id = %s", [ids[0]])
    jobs = [claim(conn) for _ in range(4)]
    for job in jobs:
        assert complete(conn, job)
    conn.execute("UPDATE jobs SET status = 'cancelled' WHERE id = %s", [ids[4]])  # it has no score
    measure_now(conn)
    assert one(conn, "SELECT count(*) AS number FROM estimate_samples")["number"] == 0
    assert ratio() == 0.75
    assert b"convertq_estimate_covered_ratio 0.75" in metrics_text(database(conn), config())
    factors = one(conn, "SELECT median_factor, late_factor FROM estimate_state")
    assert 0.25 <= factors["late_factor"] < 1  # they were done sooner than expected

    conn.execute(
        "INSERT INTO estimate_scores (covered, median_ratio, late_ratio)"
        " SELECT n %% 10 > 0, 3, CASE WHEN n %% 10 > 0 THEN 1 ELSE 5 END FROM generate_series(1, %s) AS n",
        [SCORES + 500],
    )
    insert_job(conn)
    measure_now(conn)
    assert one(conn, "SELECT count(*) AS number FROM estimate_scores")["number"] == SCORES
    assert ratio() == pytest.approx(0.9)
    factors = one(conn, "SELECT median_factor, late_factor FROM estimate_state")
    assert factors["median_factor"] == pytest.approx(3, rel=0.1)


def test_one_session_measures_at_a_time_and_none_while_nothing_happens(conn: Conn, connect: Connect) -> None:
    other = connect()
    insert_job(conn)
    with conn.transaction():
        run(conn, "lock_estimates")
        assert begin(lambda: measure(database(other), config())).result(WAIT_SECONDS) is False
    assert measure(database(other), config()) is True
    conn.execute("UPDATE estimate_state SET next_at = now()")
    assert measure(database(conn), config()) is False


def test_an_outage_and_a_pause_are_remembered_as_interruptions(conn: Conn) -> None:
    set_breaker(conn, "open", opened_at=one(conn, "SELECT now() - interval '50 s' AS at")["at"])
    set_breaker(conn, "closed")
    for scope in (Scope(owner="anna"), Scope()):
        start_pause(database(conn), scope, ME)
        end_pauses(database(conn), scope, ME)
    insert_job(conn)
    measure_now(conn)
    found = one(conn, "SELECT interruptions FROM estimate_state")["interruptions"]["default"]
    assert found["number"] == 1 + 1


def test_show_and_wait_say_when_it_is_done(conn: Conn, environment: Environment) -> None:
    register_server(conn)
    job_id = insert_job(conn)
    shown = run_convertq("show", str(job_id), environment=environment()).stdout
    assert "\nprobably done at " in shown
    assert ", in nine of ten cases by " in shown
    said = json.loads(run_convertq("show", str(job_id), "--json", environment=environment()).stdout)["estimate"]
    assert said["position"] == 1
    waited = run_convertq("wait", str(job_id), "--timeout", "0", environment=environment())
    assert "; probably done at " in waited.stderr


def test_the_api_and_the_page_have_the_estimate_and_the_etag_has_not(place: Place, visitor: Visitor) -> None:
    server = register_server(place.conn)
    job = visitor.submit().json()
    assert job["estimate"]["position"] >= 1
    assert job["estimate"]["starts_at"] <= job["estimate"]["done_at"] <= job["estimate"]["done_by"]
    listed = visitor.get("/api/jobs")
    assert listed.json()["jobs"][0]["estimate"]["position"] == job["estimate"]["position"]
    assert "probably done within " in visitor.get("/").text

    place.conn.execute("UPDATE servers SET concurrency = 50 WHERE id = %s", [server])
    insert_job(place.conn, priority=5)
    moved = visitor.get(f"/api/jobs/{job['id']}").json()["estimate"]
    assert moved["position"] == job["estimate"]["position"] + 1
    again = visitor.get("/api/jobs", headers={"If-None-Match": listed.headers["ETag"]})
    assert again.status_code == 304
    visitor.post(f"/api/jobs/{job['id']}/cancel")
    assert visitor.get(f"/api/jobs/{job['id']}").json()["estimate"] is None
    assert visitor.get("/api/jobs").json()["jobs"][0]["estimate"] is None
