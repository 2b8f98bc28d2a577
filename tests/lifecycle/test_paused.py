"""What was paused and wakes up finds that its job is another's, touches nothing of it, and works on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import document, held, silent
from tests.lifecycle.conftest import pid_of_holder, wait_for_call, wait_until_past
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway

SHORT_LEASE = {"WORKER_LEASE_TTL_SEC": 4, "WORKER_LEASE_EXTEND_SEC": 1}
SHORT_HEARTBEAT = {"WORKER_HEARTBEAT_SEC": 1, "WORKER_HEARTBEAT_TIMEOUT_SEC": 2}


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def assert_it_stayed_the_others(documents: Documents, job_id: UUID, story: str) -> None:
    assert documents.result(job_id).read_bytes() == b"<by-the-other/>"
    assert documents.story(job_id) == story
    assert documents.row(job_id)["attempt_count"] == 2
    documents.wait_until_tidy()


def works(documents: Documents) -> bool:
    return bool(documents.wait_for(documents.put())["status"] == "complete")


def test_a_worker_paused_past_its_lease_changes_neither_row_nor_file(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    paused_one = supervisor(WORKER_CONCURRENCY=1, **SHORT_LEASE)
    job_id = documents.upload()
    answer = threading.Event()
    gateway.script_for(job_id, held(answer, document(b"<by-the-paused/>")), document(b"<by-the-other/>"))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    with paused(pid_of_holder(paused_one, documents, job_id)):
        answer.set()
        wait_until_past(documents, documents.row(job_id)["lease_expires_at"])
        other = supervisor(WORKER_CONCURRENCY=1, **SHORT_LEASE)
        assert documents.wait_for(job_id)["status"] == "complete"
        row = documents.row(job_id)
    paused_one.wait_for_event("lease_lost", job_id=str(job_id))
    assert documents.row(job_id) == row
    assert_it_stayed_the_others(documents, job_id, "created queued processing reclaimed processing complete")
    assert other.stop() == 0
    assert works(documents)


def test_a_supervisor_paused_with_its_workers_is_declared_dead_and_comes_back_under_a_new_name(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    paused_one = supervisor(**SHORT_HEARTBEAT)
    job_id = documents.upload()
    gateway.script_for(job_id, silent(), document(b"<by-the-other/>"))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    with paused(*everybody(paused_one)):
        (first,) = documents.servers()
        wait_until_silent(documents)
        other = supervisor(**SHORT_HEARTBEAT)
        assert documents.wait_for(job_id)["status"] == "complete"
        assert [server["status"] for server in documents.servers()] == ["dead", "active"]
    paused_one.wait_for_event("lease_lost", job_id=str(job_id))
    assert_it_stayed_the_others(documents, job_id, "created queued processing reclaimed processing complete")
    assert other.stop() == 0
    assert works(documents)
    assert [server["status"] for server in documents.servers()] == ["dead", "stopped", "active"]
    assert documents.servers()[-1]["pid"] == first["pid"]
    assert documents.servers()[-1]["id"] != first["id"]


def test_an_idle_supervisor_that_was_paused_works_under_its_new_name(
    supervisor: Supervisor, documents: Documents
) -> None:
    paused_one = supervisor(**SHORT_HEARTBEAT)
    with paused(*everybody(paused_one)):
        wait_until_silent(documents)
        documents.conn.execute("UPDATE servers SET status = 'dead', stopped_at = now()")
    job_id = documents.put()
    assert documents.wait_for(job_id)["status"] == "complete"
    (complete,) = [event for event in documents.events(job_id) if event["event_type"] == "complete"]
    assert complete["meta"]["worker"].startswith(documents.servers()[-1]["id"] + "/")
    assert [server["status"] for server in documents.servers()] == ["dead", "active"]


def everybody(process: Process) -> list[int]:
    """The supervisor first: it would take a stopped worker for what it is."""
    return [process.pid, *process.children()]


def wait_until_silent(documents: Documents) -> None:
    row = documents.conn.execute("SELECT last_heartbeat_at + '2.1 s' AS silent FROM servers").fetchone()
    assert row is not None
    wait_until_past(documents, row["silent"])
