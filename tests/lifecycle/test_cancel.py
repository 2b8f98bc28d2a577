"""A job that is cancelled while a worker has it: its call is dropped, nothing of it stays, and the worker goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.conftest import Environment
from tests.documents import Documents
from tests.gateway_behaviours import Behaviour, Exchange, abandoned, held, ok
from tests.lifecycle.conftest import wait_for_call
from tests.lifecycle.test_batches import in_a_full_batch
from tests.processes import Process, run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, eventually

StartWorker = Callable[..., Process]
#: A call may take ten minutes, and the lease is extended after three: long after a test has given up.
NOTHING_IS_DUE = {"GATEWAY_TIMEOUT_MS": 600_000, "WORKER_LEASE_EXTEND_SEC": 190}
CANCELLED = "created queued processing cancelled"


@pytest.fixture
def start_worker(environment: Environment) -> Iterator[StartWorker]:
    """`start_worker("tests.cancelled_worker", TEST_LEARNS_BY="notification")`: another host."""
    started: list[Process] = []

    def start_worker(program: str, **settings: object) -> Process:
        given = environment(
            PYTHONPATH=str(Path(__file__).parents[2]),
            **{"WORKER_CONCURRENCY": 1, **NOTHING_IS_DUE, **settings},
        )
        started.append(Process("worker", "run", environment=given, program=(sys.executable, "-m", program)))
        started[-1].wait_for_event("ready")
        return started[-1]

    yield start_worker
    leftovers = [name for process in started for name in process.end()]
    assert not leftovers, f"left running by the test: {leftovers}"


@pytest.mark.parametrize("learns_by", ["notification", "report"])
def test_a_long_call_is_dropped_on_whichever_host_it_runs(
    start_worker: StartWorker,
    documents: Documents,
    gateway: StandInGateway,
    environment: Environment,
    learns_by: str,
) -> None:
    """With the notification, no report, no extension and no timeout is due for minutes."""
    hosts = [start_worker("tests.cancelled_worker", TEST_LEARNS_BY=learns_by) for _ in range(2)]
    closed = {documents.upload(): threading.Event() for _ in hosts}
    for job_id, event in closed.items():
        gateway.script_for(job_id, abandoned(event))
        documents.insert(job_id, sha256=job_id.hex * 2)
        wait_for_call(gateway, job_id)
    cancelled, kept = closed
    holder = documents.row(cancelled)["leased_by"]
    [its_host] = [host for host in hosts if host.events("start", job_id=str(cancelled))]
    done = run("cancel", str(cancelled), environment=environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{cancelled} cancelled\n", "")
    row = documents.row(cancelled)
    assert (row["status"], row["leased_by"], row["attempt_count"]) == ("cancelled", None, 0)
    assert closed[cancelled].wait(WAIT_SECONDS)
    line = its_host.wait_for_event("cancelled", job_id=str(cancelled))
    assert (line["worker"], line["status"], line["attempt"]) == (holder, "cancelled", 1)
    assert documents.wait_for(documents.put())["status"] == "complete"
    assert not closed[kept].is_set()
    assert documents.row(kept)["status"] == "processing"
    assert documents.row(cancelled) == row
    assert documents.story(cancelled) == CANCELLED
    assert not documents.result(cancelled).exists()
    assert [host.events("worker_died") + host.events("lease_lost") for host in hosts] == [[], []]
    assert run("cancel", str(kept), environment=environment()).returncode == 0
    assert closed[kept].wait(WAIT_SECONDS)
    documents.wait_until_tidy()


def test_a_result_that_arrives_after_the_cancel_is_thrown_away(
    start_worker: StartWorker, documents: Documents, gateway: StandInGateway, environment: Environment
) -> None:
    """The worker has not learnt of it: the fence refuses its completion. A retry converts the job again."""
    process = start_worker("tests.cancelled_worker", TEST_LEARNS_BY="report")
    answered, job_id = threading.Event(), documents.upload()
    gateway.script_for(job_id, held(answered))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    assert run("cancel", str(job_id), environment=environment()).returncode == 0
    answered.set()
    process.wait_for_event("cancelled", job_id=str(job_id))
    documents.wait_until_tidy()
    assert not documents.result(job_id).exists()
    assert run("result", str(job_id), environment=environment()).returncode == 4
    assert run("wait", str(job_id), environment=environment()).returncode == 1
    assert run("retry", str(job_id), environment=environment()).returncode == 0
    assert documents.wait_for(job_id)["status"] == "complete"
    assert documents.story(job_id) == f"{CANCELLED} retry processing complete"
    assert documents.row(job_id)["run"] == 2


def test_jobs_that_are_claimed_ahead_and_cancelled_are_never_begun(
    start_worker: StartWorker, documents: Documents, gateway: StandInGateway
) -> None:
    dropped: list[UUID] = []
    process: list[Process] = []

    def cancel_some(leased: list[UUID]) -> Behaviour:
        """While a call is under way: the supervisor's notice makes the worker extend the lease of that one."""

        def act(exchange: Exchange) -> None:
            begun = {request.correlation_id for request in gateway.requests}
            dropped.extend([job_id for job_id in leased if str(job_id) not in begun][:3])
            before = len(process[0].events("lease_extended"))
            documents.conn.execute("UPDATE jobs SET status = 'cancelled', leased_by = NULL, lease_expires_at = NULL"
                                   " WHERE id = ANY (%s)", [dropped])  # fmt: skip
            eventually(lambda: len(process[0].events("lease_extended")) > before, what="the worker heard of it")
            ok().act(exchange)

        return Behaviour("cancels some", act)

    gateway.default = in_a_full_batch(documents, cancel_some)
    gateway.script(held(may_begin := threading.Event()))
    jobs = documents.put_many(40)
    process.append(start_worker("tests.long_batches_worker", TEST_SETTLE_WITHIN_SECONDS=60, CIRCUIT_WINDOW=1000))
    may_begin.set()
    documents.wait_for_all(jobs, "complete", "cancelled", timeout=60)
    assert dropped
    assert [documents.row(job_id)["status"] for job_id in dropped] == ["cancelled"] * len(dropped)
    assert [gateway.requests_of(job_id) for job_id in dropped] == [[]] * len(dropped)
    for job_id in dropped:
        process[0].wait_for_event("cancelled", job_id=str(job_id))
    assert process[0].events("lease_lost") == []
    documents.wait_until_tidy()
