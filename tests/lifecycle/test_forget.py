"""A job that is forgotten while a worker converts it: its worker changes nothing afterwards, and no file appears."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import Environment, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held
from tests.lifecycle.conftest import wait_for_call
from tests.processes import run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, eventually


@pytest.mark.parametrize("further", [0, 3])
def test_a_job_forgotten_in_mid_conversion_leaves_nothing_and_the_worker_goes_on(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, environment: Environment, further: int
) -> None:
    """With further jobs its worker completes it together with the claim of the next one."""
    answered = threading.Event()
    process = supervisor(WORKER_CONCURRENCY=1)
    job_id = documents.upload()
    gateway.script_for(job_id, held(answered))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    others = [documents.put(b"%%PDF-1.7 %d" % number) for number in range(further)]
    done = run("forget", str(job_id), environment=environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{job_id} forgotten\n", "")
    answered.set()
    process.wait_for_event("lease_lost", job_id=str(job_id))
    others.append(documents.put(b"%PDF-1.7 afterwards"))
    documents.wait_for_all(others, "complete")
    documents.wait_until_tidy()
    assert not documents.result(job_id).exists()
    assert not documents.source(job_id).exists()
    assert documents.conn.execute("SELECT FROM jobs WHERE id = %s", [job_id]).fetchall() == []
    assert documents.events(job_id) == []
    assert process.events("worker_died") == []
    assert process.events("db_down") == []
    metrics = run("metrics", environment=environment()).stdout
    assert f'convertq_jobs{{status="complete"}} {float(len(others))}' in metrics
    assert 'convertq_jobs{status="processing"} 0.0' in metrics
    assert f"convertq_jobs_created_total {float(len(others) + 1)}" in metrics


def test_a_long_conversion_ends_when_its_worker_learns_that_the_job_is_forgotten(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, environment: Environment
) -> None:
    """Nobody answers the call: the worker is free again as soon as it extends the lease or writes progress."""
    process = supervisor(WORKER_CONCURRENCY=1, GATEWAY_TIMEOUT_MS=60_000)
    job_id = documents.upload()
    gateway.script_for(job_id, held(threading.Event()))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    assert run("forget", str(job_id), environment=environment()).returncode == 0
    process.wait_for_event("lease_lost", job_id=str(job_id))
    assert documents.wait_for(documents.put())["status"] == "complete"
    documents.wait_until_tidy()


def test_who_waits_for_a_job_that_is_forgotten_is_told_that_it_is_gone(
    documents: Documents, environment: Environment
) -> None:
    job_id = documents.put()
    codes: list[int] = []
    waiting = threading.Thread(
        target=lambda: codes.append(run("wait", str(job_id), environment=environment()).returncode)
    )
    waiting.start()
    sessions = "SELECT FROM pg_stat_activity WHERE application_name = 'convertq:cli' AND datname = current_database()"
    eventually(lambda: documents.conn.execute(sessions).rowcount, what="the session of wait")
    assert run("forget", str(job_id), environment=environment()).returncode == 0
    waiting.join(WAIT_SECONDS)
    assert codes == [3]
