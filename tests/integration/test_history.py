"""The admin page's charts: each minute counts its own, cheaply on a long history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from convertq.queue.errors import Code, Failure
from convertq.queue.history import CALLS_MEASURED, get_history
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor

from tests.conftest import Server
from tests.integration.test_plans import explain, nodes
from tests.jobs import (
    Conn,
    claim,
    claimed,
    complete,
    database,
    fail,
    insert_job,
    one,
    retry_later,
    run,
)
from tests.whole_site import Makings, new_database

#: an hour at fifty a second, one in ten tried again and one in fifty failed; and a day of what is older
LONG_HISTORY = """
WITH job AS (SELECT id FROM jobs LIMIT 1)
INSERT INTO job_events (job_id, event_type, at, meta)
SELECT job.id, CASE WHEN n % 50 = 0 THEN 'failed' WHEN n % 10 = 0 THEN 'retry' ELSE 'complete' END,
       now() - n * interval '20 ms' - CASE WHEN n % 3 = 0 THEN interval '2 h' ELSE interval '0' END,
       '{"gateway_ok": true, "gateway_ms": 120, "error_code": "GW_5XX"}'
  FROM job, generate_series(1, 180000) AS n
"""


def minutes_of(conn: Conn, minutes: int = 5) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get_history(database(conn), minutes)["minutes"]
    return found


def total(minutes: list[dict[str, Any]], name: str) -> int:
    return sum(minute[name] for minute in minutes)


def move_into_the_past(conn: Conn, minutes: int) -> None:
    """All that has happened so far happened so long ago; events are append-only, so that is switched off for it."""
    shift = timedelta(minutes=minutes)
    conn.execute("ALTER TABLE job_events DISABLE TRIGGER USER")
    conn.execute("UPDATE job_events SET at = at - %s", [shift])
    conn.execute("ALTER TABLE job_events ENABLE TRIGGER USER")
    conn.execute("UPDATE jobs SET created_at = created_at - %s", [shift])


def test_a_quiet_queue_has_a_row_of_zeros_for_every_minute(conn: Conn) -> None:
    minutes = minutes_of(conn, 60)
    assert len(minutes) == 60
    assert [minute["at"] for minute in minutes] == sorted(minute["at"] for minute in minutes)
    assert {minute["at"].second for minute in minutes} == {0}
    nothing = dict.fromkeys(("completed", "failed", "retries", "depth"), 0)
    quiet: dict[str, Any] = {**nothing, "errors": {}, "gateway_p50_ms": None, "gateway_p95_ms": None}
    assert all({name: minute[name] for name in quiet} == quiet for minute in minutes)


def test_outcomes_retries_errors_and_times_are_counted_in_their_minute(conn: Conn) -> None:
    for ms in (100, 200, 300):
        complete(conn, claimed(conn), gateway_status=200, gateway_ms=ms)
    retry_later(conn, claimed(conn), failure=Failure(Code.GW_5XX, "503", called=True, gateway_ms=400))
    fail(conn, claimed(conn), Failure(Code.GW_4XX, "400", called=True, gateway_ms=500))
    fail(conn, claimed(conn), Failure(Code.IO_ERROR, "no source"))
    move_into_the_past(conn, 2)
    minutes = minutes_of(conn)
    assert (total(minutes, "completed"), total(minutes, "failed"), total(minutes, "retries")) == (3, 2, 1)
    assert {code for minute in minutes for code in minute["errors"]} == {"GW_4XX", "IO_ERROR"}
    measured = [minute for minute in minutes if minute["gateway_p50_ms"] is not None]
    assert measured
    assert all(100 <= minute["gateway_p50_ms"] <= minute["gateway_p95_ms"] <= 500 for minute in measured)
    assert minutes[-1]["completed"] == 0


def test_what_is_older_than_asked_for_is_left_out(conn: Conn) -> None:
    complete(conn, claimed(conn))
    move_into_the_past(conn, 10)
    assert total(minutes_of(conn, 5), "completed") == 0
    assert total(minutes_of(conn, 15), "completed") == 1


def test_the_depth_follows_who_came_and_who_left(conn: Conn) -> None:
    for _ in range(3):
        insert_job(conn)
    move_into_the_past(conn, 3)
    complete(conn, claim(conn))
    depths = [minute["depth"] for minute in minutes_of(conn, 10)]
    assert depths[0] == 0
    assert 3 in depths
    assert depths[-1] == 2


def test_a_job_retried_by_hand_comes_back_into_the_depth_and_is_no_retry(conn: Conn) -> None:
    job_id = insert_job(conn)
    fail(conn, claim(conn))
    move_into_the_past(conn, 3)
    assert run(conn, "retry_jobs", ids=[job_id])
    minutes = minutes_of(conn, 10)
    depths = [minute["depth"] for minute in minutes]
    assert (depths[0], depths[-3], depths[-1]) == (0, 0, 1)  # between the last two a minute may have ended
    assert total(minutes, "retries") == 0


def test_what_another_program_wrote_as_a_time_does_no_harm(conn: Conn) -> None:
    job_id = insert_job(conn)
    odd = [{"gateway_ok": True, "gateway_ms": value} for value in ("soon", None, {"a": 1}, 250)]
    for meta in odd:
        conn.execute(
            "INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'complete', %s)", [job_id, json.dumps(meta)]
        )
    measured = {minute["gateway_p50_ms"] for minute in minutes_of(conn)} - {None}
    assert measured == {250}


# -- cheap, however much has happened --


@pytest.fixture(scope="module")
def history(pg_server: Server, template: NoopExecutor, admin: psycopg.Connection) -> Iterator[str]:
    """One long history for this module."""
    with new_database(Makings(pg_server, template, admin)) as url:
        with psycopg.connect(url, autocommit=True, row_factory=dict_row) as conn:
            insert_job(conn)
            conn.execute("ALTER TABLE job_events DISABLE TRIGGER USER")
            conn.execute(LONG_HISTORY)
            conn.execute("VACUUM ANALYZE job_events")
        yield url


@pytest.fixture
def long(history: str) -> Iterator[Conn]:
    with psycopg.connect(history, row_factory=dict_row) as opened:
        yield opened
        opened.rollback()


COUNTED = {"job_events_outcomes", "job_events_again"}
#: its parameters, and the indexes that it is meant to use
STATEMENTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "count_minutes": ({"minutes": 60}, COUNTED),
    "measure_minutes": ({"minutes": 60, "calls": CALLS_MEASURED}, COUNTED),
    "count_arrivals": ({"minutes": 60}, {"jobs_by_status", "job_events_again"}),
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_events_are_never_read_whole(long: Conn, statement: str, mode: str) -> None:
    parameters, indexes = STATEMENTS[statement]
    found = list(nodes(explain(long, statement, mode, parameters=parameters)))
    assert not [node for node in found if node["Node Type"] == "Seq Scan" and node["Relation Name"] == "job_events"]
    used = {node["Index Name"] for node in found if node.get("Index Name", "").startswith("job_events")}
    assert used
    assert used <= indexes


def test_completed_jobs_are_counted_in_the_index_alone(long: Conn) -> None:
    found = list(nodes(explain(long, "count_minutes", "force_generic_plan", parameters=STATEMENTS["count_minutes"][0])))
    counting = [node for node in found if node["Node Type"] == "Index Only Scan"]
    assert "job_events_outcomes" in {node["Index Name"] for node in counting}


def test_the_measured_calls_are_bounded(long: Conn) -> None:
    parameters = STATEMENTS["measure_minutes"][0]
    found = list(nodes(explain(long, "measure_minutes", "force_generic_plan", ", ANALYZE", parameters)))
    rows = [node["Actual Rows"] for node in found if node["Node Type"] == "Limit"]
    assert rows
    assert max(rows) <= CALLS_MEASURED


def test_the_history_was_long(long: Conn) -> None:
    assert one(long, "SELECT count(*) AS count FROM job_events")["count"] > 179_000
