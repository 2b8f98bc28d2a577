"""A statement that fails is not an outage: the worker keeps its connection and its lease, and logs the error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Connect
from tests.documents import Documents
from tests.gateway_behaviours import held
from tests.lifecycle.conftest import ShortTimeoutsSupervisor, wait_for_call, wait_until_past
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.waiting import Row, eventually

Conn = psycopg.Connection[Row]
BLOCKED = """
SELECT query_start FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'convertq:%' AND wait_event_type = 'Lock'
"""
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE check_violation USING MESSAGE = 'no results on Sundays'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NEW.status = 'complete') EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def foreign(connect: Connect) -> Conn:
    """The connection of an application that holds a lock."""
    return connect()


@contextmanager
def lock_on(foreign: Conn, job_id: UUID) -> Iterator[None]:
    with foreign.transaction():
        foreign.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [job_id])
        yield


def wait_until_it_failed(documents: Documents, times: int = 3) -> None:
    """Until so many statements of workers have waited for a lock, one after another."""
    seen: set[datetime] = set()

    def has_failed() -> bool:
        seen.update(row["query_start"] for row in documents.conn.execute(BLOCKED))
        return len(seen) > times

    eventually(has_failed, what=f"{times} statements that ended without the lock")


def begun_job(documents: Documents, gateway: StandInGateway, answer: threading.Event) -> UUID:
    gateway.script(held(answer))
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    return job_id


def assert_no_outage_was_seen(process: Process) -> None:
    assert [process.events(name) for name in ("db_down", "lease_lost", "worker_died")] == [[], [], []]


def test_a_result_is_completed_when_the_lock_on_its_row_is_gone(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway, foreign: Conn
) -> None:
    process, answer = short_timeouts_supervisor(WORKER_CONCURRENCY=1), threading.Event()
    job_id = begun_job(documents, gateway, answer)
    with lock_on(foreign, job_id):
        answer.set()
        wait_until_it_failed(documents)
    assert documents.wait_for(job_id)["attempt_count"] == 1
    assert documents.story(job_id) == "created queued processing complete"
    assert len(gateway.requests_of(job_id)) == 1
    assert_no_outage_was_seen(process)


def test_the_lease_is_kept_while_the_result_cannot_be_recorded(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway
) -> None:
    settings = {"WORKER_LEASE_TTL_SEC": 4, "WORKER_LEASE_EXTEND_SEC": 1}
    process, answer = short_timeouts_supervisor(WORKER_CONCURRENCY=1, **settings), threading.Event()
    job_id = begun_job(documents, gateway, answer)
    documents.conn.execute(REFUSE)
    answer.set()
    process.wait_for_event("gateway_ok")
    wait_until_past(documents, documents.row(job_id)["lease_expires_at"])
    documents.conn.execute("DROP TRIGGER refuse ON jobs")
    assert documents.wait_for(job_id)["attempt_count"] == 1
    assert documents.story(job_id) == "created queued processing complete"
    assert_no_outage_was_seen(process)


def test_a_result_that_cannot_be_recorded_at_all_ends_with_the_true_reason(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway
) -> None:
    process = short_timeouts_supervisor(WORKER_CONCURRENCY=1, RETRY_MAX_ATTEMPTS=2, TEST_SETTLE_RETRY_SECONDS=0.5)
    documents.conn.execute(REFUSE)
    job_id = documents.put()
    row = documents.wait_for(job_id)
    assert (row["status"], row["error_code"], row["dead_letter"]) == ("failed", "UNKNOWN", True)
    assert row["error_message"] == "the result could not be recorded: no results on Sundays"
    assert documents.story(job_id) == "created queued processing retry processing failed"
    documents.conn.execute("DROP TRIGGER refuse ON jobs")
    assert documents.wait_for(documents.put(b"%PDF-1.7\n%another\n%%EOF\n"))["status"] == "complete"
    assert_no_outage_was_seen(process)


def test_an_outcome_that_cannot_be_recorded_either_is_let_go_and_given_back_later(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway, foreign: Conn
) -> None:
    process = short_timeouts_supervisor(WORKER_CONCURRENCY=1, TEST_SETTLE_RETRY_SECONDS=0.5)
    answer = threading.Event()
    job_id = begun_job(documents, gateway, answer)
    with lock_on(foreign, job_id):
        answer.set()
        lost = process.wait_for_event("lease_lost")
        assert lost["reason"] == "the outcome could not be recorded: canceling statement due to lock timeout"
        other = documents.put(b"%PDF-1.7\n%another\n%%EOF\n")
        assert documents.wait_for(other)["status"] == "complete"  # the worker stands still no longer
    row = documents.wait_for(job_id)
    assert (row["status"], row["attempt_count"]) == ("complete", 2)
    assert documents.story(job_id) == "created queued processing requeued processing complete"
    assert process.events("db_down") == []


def test_a_dependant_that_an_application_keeps_locked_holds_nobody_up(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway, foreign: Conn
) -> None:
    process, answer = short_timeouts_supervisor(WORKER_CONCURRENCY=1, RETRY_MAX_ATTEMPTS=1), threading.Event()
    job_id = begun_job(documents, gateway, answer)
    with documents.conn.transaction():
        dependant = documents.insert(documents.upload(), status="uploaded")
        documents.conn.execute("INSERT INTO job_dependencies VALUES (%s, %s)", [dependant, job_id])
    with lock_on(foreign, dependant):
        answer.set()
        assert documents.wait_for(job_id)["status"] == "complete"
        other = documents.put(b"%PDF-1.7\n%another\n%%EOF\n")
        assert documents.wait_for(other)["status"] == "complete"
    assert documents.wait_for(dependant)["status"] == "complete"
    assert documents.story(dependant) == "created queued processing complete"
    assert_no_outage_was_seen(process)


def test_a_lock_on_a_running_jobs_row_is_no_outage(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway, foreign: Conn
) -> None:
    settings = {"WORKER_LEASE_TTL_SEC": 60, "WORKER_LEASE_EXTEND_SEC": 1}
    process, answer = short_timeouts_supervisor(WORKER_CONCURRENCY=1, **settings), threading.Event()
    job_id = begun_job(documents, gateway, answer)
    with lock_on(foreign, job_id):
        wait_until_it_failed(documents)
    process.wait_for_event("lease_extended")
    answer.set()
    assert documents.wait_for(job_id)["attempt_count"] == 1
    assert_no_outage_was_seen(process)


def test_a_report_that_fails_does_not_cost_the_lease(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway, foreign: Conn
) -> None:
    settings = {"WORKER_LEASE_TTL_SEC": 4, "WORKER_LEASE_EXTEND_SEC": 1}
    process, answer = short_timeouts_supervisor(WORKER_CONCURRENCY=1, **settings), threading.Event()
    job_id = begun_job(documents, gateway, answer)
    with foreign.transaction():
        foreign.execute("LOCK TABLE job_progress IN SHARE MODE")
        first_end = documents.row(job_id)["lease_expires_at"]
        wait_until_past(documents, first_end)
    answer.set()
    assert documents.wait_for(job_id)["attempt_count"] == 1
    assert documents.story(job_id) == "created queued processing complete"
    assert_no_outage_was_seen(process)
