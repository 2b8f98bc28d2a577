"""A worker that dies is replaced, its job goes on, and a supervisor that dies leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from convertq.queue.config import read_config
from convertq.worker.supervisor.slot import Slot
from convertq.worker.supervisor.status_table import WorkerStatus, WorkerStatusTable
from convertq.worker.supervisor.supervisor import Supervisor as SupervisorLoop

from tests.conftest import Environment, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held, silent
from tests.lifecycle.conftest import pid_of_holder, wait_for_call
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, eventually


def kill_holder(process: Process, documents: Documents, job_id: UUID) -> None:
    os.kill(pid_of_holder(process, documents, job_id), signal.SIGKILL)


def test_a_killed_workers_job_is_requeued_within_a_second_and_completed_once(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """The fastest of three counts: a loaded machine may delay one, and a timer would delay all."""
    process, delays = supervisor(CIRCUIT_WINDOW=1000), []
    for number in (1, 2, 3):
        job_id = documents.upload()
        gateway.script_for(job_id, silent())
        documents.insert(job_id)
        wait_for_call(gateway, job_id)
        holder, killed_at = pid_of_holder(process, documents, job_id), documents.now()
        os.kill(holder, signal.SIGKILL)
        requeued = documents.wait_for_event(job_id, "requeued")
        delays.append(requeued["at"] - killed_at)
        assert requeued["meta"]["attempt"] == 1
        row = documents.wait_for(job_id)
        assert (row["status"], row["attempt_count"]) == ("complete", 2)
        assert documents.story(job_id) == "created queued processing requeued processing complete"
        assert len(gateway.requests_of(job_id)) == 2
        assert process.wait_for_event("worker_died", count=number)["reason"] == "SIGKILL"
        assert process.wait_for_event("requeue", count=number)["job_id"] == str(job_id)
    assert min(delays) < timedelta(seconds=1)
    documents.wait_until_tidy()


def test_only_the_dead_workers_job_is_requeued(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    answered = threading.Event()
    process = supervisor()
    doomed, other = documents.upload(), documents.upload()
    gateway.script_for(doomed, silent())
    gateway.script_for(other, held(answered))
    for job_id in (doomed, other):
        documents.insert(job_id)
        wait_for_call(gateway, job_id)
    kill_holder(process, documents, doomed)
    documents.wait_for(doomed, "complete")
    answered.set()
    assert documents.wait_for(other)["attempt_count"] == 1
    assert documents.story(other) == "created queued processing complete"


def test_a_job_that_kills_its_worker_each_time_ends_as_a_dead_letter(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = silent()
    process = supervisor(WORKER_CONCURRENCY=1, RETRY_MAX_ATTEMPTS=2)
    job_id = documents.put()
    for attempt in (1, 2):
        wait_for_call(gateway, job_id, count=attempt)  # an attempt that has not begun would not count
        kill_holder(process, documents, job_id)
        process.wait_for_event("worker_died", count=attempt)
    row = documents.wait_for(job_id)
    assert (row["status"], row["error_code"], row["dead_letter"]) == ("failed", "UNKNOWN", True)
    assert row["attempt_count"] == 2
    assert documents.story(job_id) == "created queued processing requeued processing failed"
    logged = process.wait_for_event("failed")
    assert (logged["job_id"], logged["error_code"], logged["dead_letter"]) == (str(job_id), "UNKNOWN", True)
    assert logged["error_message"] == row["error_message"]


def test_a_killed_supervisor_takes_its_workers_with_it(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = silent()
    process = supervisor(GATEWAY_TIMEOUT_MS=600_000)
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    assert len(process.children()) == 2
    process.send(signal.SIGKILL)
    eventually(lambda: not process.family(), what="nobody alive")


def test_a_killed_supervisors_job_runs_on_the_next_one(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    settings = {"WORKER_HEARTBEAT_SEC": 1, "WORKER_HEARTBEAT_TIMEOUT_SEC": 2, "WORKER_CONCURRENCY": 4}
    process = supervisor(**settings)
    job_id = documents.upload()
    gateway.script_for(job_id, silent())
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    process.send(signal.SIGKILL)
    supervisor(**settings)
    assert documents.wait_for(job_id)["status"] == "complete"
    assert documents.story(job_id) == "created queued processing reclaimed processing complete"
    assert [server["status"] for server in documents.servers()] == ["dead", "active"]
    documents.wait_until_tidy()


def test_a_replaced_worker_works_on(supervisor: Supervisor, documents: Documents) -> None:
    process = supervisor(WORKER_CONCURRENCY=1)
    (first,) = process.children()
    os.kill(first, signal.SIGKILL)
    process.wait_for_event("worker_start", count=2)
    job_id = documents.put()
    row = documents.wait_for(job_id)
    assert (row["status"], row["attempt_count"]) == ("complete", 1)
    assert process.children() != [first]


def test_a_worker_that_keeps_dying_is_replaced_with_growing_pauses(supervisor: Supervisor) -> None:
    """Of the first two pauses the shorter one counts: a loaded machine may delay one."""
    process = supervisor(WORKER_CONCURRENCY=1)
    for death in (1, 2, 3, 4):
        started = process.wait_for_event("worker_start", count=death)
        os.kill(int(started["pid"]), signal.SIGKILL)
        process.wait_for_event("worker_died", count=death)
    process.wait_for_event("worker_start", count=5)
    died = [datetime.fromisoformat(event["timestamp"]) for event in process.events("worker_died")]
    started_again = [datetime.fromisoformat(event["timestamp"]) for event in process.events("worker_start")][1:]
    pauses = [(start - death).total_seconds() for death, start in zip(died, started_again, strict=True)]
    assert min(pauses[:2]) < pauses[2]
    assert pauses[2] >= 0.9
    assert pauses[3] >= 1.8


def test_a_worker_is_recycled_after_so_many_jobs(supervisor: Supervisor, documents: Documents) -> None:
    process = supervisor(WORKER_CONCURRENCY=1, WORKER_MAX_JOBS=2)
    jobs = documents.put_many(9)
    documents.wait_for_all(jobs, "complete")
    process.wait_for_event("worker_start", count=5)
    assert process.events("worker_died") == []
    query = "SELECT max(attempt_count) AS most FROM jobs"
    assert documents.conn.execute(query).fetchone() == {"most": 1}


@pytest.mark.parametrize(("deadline", "is_killed"), [(-0.1, True), (60, False), (None, False)])
def test_a_worker_past_its_deadline_is_killed(
    environment: Environment, deadline: float | None, is_killed: bool
) -> None:
    """The deadline is the gateway's timeout and 30 s more, too long for a test: so it is set in the status table."""
    loop = SupervisorLoop(read_config(environment(WORKER_CONCURRENCY=1)))
    status_table: WorkerStatusTable = loop._status_table
    slot: Slot = loop._pool.slots[0]
    with subprocess.Popen(["sleep", "60"]) as worker:
        slot.pid = worker.pid
        status_table.write(
            1, WorkerStatus(True, True, False, time.monotonic() + deadline if deadline is not None else 0, 0)
        )
        loop._pool.kill_overdue(None)
        assert ("stuck" in slot.kill_reason) is is_killed
        if not is_killed:
            worker.kill()
        assert worker.wait(WAIT_SECONDS) == -signal.SIGKILL
