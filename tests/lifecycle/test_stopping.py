"""Stopping: the current job is finished or requeued, the server's row shows it, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from uuid import UUID

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Convertq, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held, silent
from tests.lifecycle.conftest import OwnDocuments, wait_for_call
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

#: Half as long as a grace or a call that would be waited for. It is long because a loaded machine is slow.
SOON_SECONDS = 30.0
LONG_CALLS = {"GATEWAY_TIMEOUT_MS": 60_000}


def sessions(documents: Documents) -> int:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'convertq:%'"
    return documents.conn.execute(query).rowcount


def assert_nothing_is_left(process: Process, documents: Documents) -> None:
    assert process.family() == []
    assert documents.temporary_files() == []
    assert [server["status"] for server in documents.servers()] == ["stopped"]
    assert documents.servers()[0]["stopped_at"] is not None
    eventually(lambda: sessions(documents) == 0, what="no session left")


def assert_given_back(documents: Documents, job_id: UUID) -> None:
    row = documents.row(job_id)
    assert (row["status"], row["attempt_count"], row["retry_after"]) == ("queued", 0, None)
    assert documents.story(job_id) == "created queued processing requeued"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_running_job_is_finished_and_no_other_begun(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, number: signal.Signals
) -> None:
    answered = threading.Event()
    gateway.default = held(answered)
    process = supervisor(WORKER_CONCURRENCY=1, WORKER_SHUTDOWN_GRACE_SEC=60)
    running_jobs = documents.put(priority=1)
    waiting = documents.put()
    wait_for_call(gateway, running_jobs)
    process.send(number)
    eventually(lambda: documents.servers()[0]["status"] == "draining", what="draining")
    answered.set()
    assert process.wait() == 0
    assert documents.row(running_jobs)["status"] == "complete"
    assert documents.row(waiting)["attempt_count"] == 0
    assert_nothing_is_left(process, documents)


def test_what_cannot_finish_within_the_grace_is_given_back(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = silent()
    process = supervisor(WORKER_SHUTDOWN_GRACE_SEC=1, **LONG_CALLS)
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    begun = time.monotonic()
    assert process.stop(SOON_SECONDS) == 0
    assert time.monotonic() - begun > 0.9
    assert_given_back(documents, job_id)
    assert process.wait_for_event("requeue")["job_id"] == str(job_id)
    assert_nothing_is_left(process, documents)


def test_without_any_grace_the_job_is_given_back_at_once(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = silent()
    process = supervisor(WORKER_SHUTDOWN_GRACE_SEC=0, **LONG_CALLS)
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    assert process.stop(SOON_SECONDS) == 0
    assert_given_back(documents, job_id)


def test_a_second_signal_gives_the_job_back_at_once(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = silent()
    process = supervisor(WORKER_SHUTDOWN_GRACE_SEC=60, **LONG_CALLS)
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    process.send(signal.SIGTERM)
    process.wait_for_event("shutdown")
    assert process.stop(SOON_SECONDS) == 0
    assert_given_back(documents, job_id)
    assert_nothing_is_left(process, documents)


def test_a_terminals_interrupt_to_the_whole_group_counts_once(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    answered = threading.Event()
    gateway.default = held(answered)
    process = supervisor()
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    os.killpg(process.pid, signal.SIGINT)
    process.wait_for_event("shutdown", reason="SIGINT")
    answered.set()
    assert process.wait() == 0
    assert documents.row(job_id)["status"] == "complete"
    assert documents.row(job_id)["attempt_count"] == 1
    assert len(process.events("shutdown", reason="SIGINT")) == 1
    assert process.events("worker_died") == []


def test_a_service_managers_signal_to_every_process_counts_once(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """systemd sends SIGTERM to the whole control group, unless configured otherwise."""
    answered = threading.Event()
    gateway.default = held(answered)
    process = supervisor()
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait_for_event("shutdown", reason="SIGTERM")
    answered.set()
    assert process.wait() == 0
    assert documents.row(job_id)["status"] == "complete"


def test_an_idle_supervisor_stops_at_once(supervisor: Supervisor, documents: Documents) -> None:
    process = supervisor(WORKER_POLL_INTERVAL_MS=60000, WORKER_SHUTDOWN_GRACE_SEC=60)
    assert process.stop(SOON_SECONDS) == 0
    assert_nothing_is_left(process, documents)


def test_a_supervisor_stops_while_the_database_is_down(supervisor: Supervisor, own_postgres: EmbeddedPostgres) -> None:
    process = supervisor(DATABASE_URL=own_postgres.url(), WORKER_SHUTDOWN_GRACE_SEC=60)
    own_postgres.stop()
    process.wait_for_event("db_down")
    assert process.stop(SOON_SECONDS) == 0
    assert process.family() == []


def test_a_supervisor_with_a_running_job_stops_while_the_database_is_down(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
) -> None:
    gateway.default = silent()
    process = supervisor(DATABASE_URL=own_postgres.url(), WORKER_SHUTDOWN_GRACE_SEC=1, **LONG_CALLS)
    documents = own_documents()
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    own_postgres.stop()
    assert process.stop(SOON_SECONDS) == 0
    assert documents.temporary_files() == []


def test_a_supervisor_that_never_reached_its_database_stops_at_once(convertq: Convertq) -> None:
    process = convertq(
        "worker", "run", DATABASE_URL="postgresql://nobody@127.0.0.1:1/none", WORKER_SHUTDOWN_GRACE_SEC=60
    )
    process.wait_for_event("db_down")
    assert process.stop(SOON_SECONDS) == 0


def test_a_signal_that_comes_while_workers_are_being_forked_reaches_them_all(convertq: Convertq) -> None:
    """Until a worker has a pipe of its own, its signals must wait: neither be lost nor reach the supervisor."""
    for _ in range(3):
        process = convertq("worker", "run", WORKER_CONCURRENCY=16, WORKER_SHUTDOWN_GRACE_SEC=60)
        process.wait_for_event("worker_start")
        assert process.stop(SOON_SECONDS) == 0
        assert len(process.events("shutdown", reason="SIGTERM")) == 1
        assert process.events("worker_died") == []
