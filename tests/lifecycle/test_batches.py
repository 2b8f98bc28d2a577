"""A batch: jobs that are claimed ahead and completed together lose nothing, repeat no result and wait for nobody."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Environment
from tests.documents import Documents
from tests.gateway_behaviours import Behaviour, Exchange, held, ok, status
from tests.lifecycle.conftest import OwnDocuments, pid_of_holder
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

JOBS = 60
LeasedJobs = list[UUID]
Supervisor = Callable[..., Process]


@pytest.fixture
def supervisor(environment: Environment) -> Iterator[Supervisor]:
    """`supervisor()`: one worker whose batches are as large as can be, and are settled after a minute at the latest."""
    started: list[Process] = []
    program = (sys.executable, "-m", "tests.long_batches_worker")

    def supervisor(settle_within: float = 60, **overrides: object) -> Process:
        given = environment(
            PYTHONPATH=str(Path(__file__).parents[2]), TEST_SETTLE_WITHIN_SECONDS=settle_within,
            **{"WORKER_CONCURRENCY": 1, "CIRCUIT_WINDOW": 1000, **overrides},
        )  # fmt: skip
        started.append(Process("worker", "run", environment=given, program=program))
        started[-1].wait_for_event("ready")
        return started[-1]

    yield supervisor
    leftovers = [name for process in started for name in process.end()]
    assert not leftovers, f"left running by the test: {leftovers}"


def completions_by_commit(documents: Documents) -> list[int]:
    query = "SELECT count(*) AS jobs FROM job_events WHERE event_type = 'complete' GROUP BY xact_id"
    return [row["jobs"] for row in documents.conn.execute(query)]


def running(documents: Documents) -> LeasedJobs:
    return [row["id"] for row in documents.conn.execute("SELECT id FROM jobs WHERE status = 'processing'")]


def in_a_full_batch(documents: Documents, act: Callable[[LeasedJobs], Behaviour]) -> Behaviour:
    """Calls `act` during the first call whose worker has other jobs ahead, and answers as that says; once."""
    done = threading.Event()

    def answer(exchange: Exchange) -> None:
        leased = [] if done.is_set() else running(documents)
        if len(leased) == 8:
            done.set()
            act(leased).act(exchange)
        else:
            ok().act(exchange)

    return Behaviour("in a full batch", answer)


@contextmanager
def first_call_held(gateway: StandInGateway) -> Iterator[None]:
    """A worker calls before the test has its process: a behaviour that needs it comes into play after this."""
    release = threading.Event()
    gateway.script(held(release))
    yield
    release.set()


def calls_of(gateway: StandInGateway) -> Counter[str]:
    return Counter(request.correlation_id for request in gateway.requests)


def test_quick_jobs_of_a_deep_queue_are_completed_together(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    jobs = documents.put_many(JOBS)
    supervisor()
    documents.wait_for_all(jobs, "complete", timeout=60)
    together = completions_by_commit(documents)
    assert max(together) == 8
    assert len(together) < JOBS / 3
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert set(calls_of(gateway).values()) == {1}
    assert all(str(job_id).encode() in documents.result(job_id).read_bytes() for job_id in jobs)
    documents.wait_until_tidy()


def test_a_slow_job_keeps_no_other_job_of_its_batch_waiting(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    release, full = threading.Event(), []

    def hold(leased: LeasedJobs) -> Behaviour:
        full.extend(leased)
        return held(release)

    gateway.default = in_a_full_batch(documents, hold)
    jobs = documents.put_many(JOBS)
    supervisor(settle_within=0.5)
    eventually(lambda: bool(full), 60, "a call in a full batch")
    eventually(lambda: len(running(documents)) == 1, 60, "only the slow job is processing")
    rows = {job_id: documents.row(job_id) for job_id in full}
    slow = running(documents)[0]
    waiting = [job_id for job_id, row in rows.items() if row["status"] == "queued"]
    assert {row["status"] for job_id, row in rows.items() if job_id not in (slow, *waiting)} <= {"complete"}
    assert {rows[job_id]["attempt_count"] for job_id in waiting} <= {0}
    assert {documents.story(job_id) for job_id in waiting} <= {"created queued processing requeued"}
    release.set()
    documents.wait_for_all(jobs, "complete", timeout=60)
    assert set(calls_of(gateway).values()) == {1}


def test_a_worker_that_dies_in_a_batch_costs_no_attempt_of_a_job_that_it_had_not_begun(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """With one attempt in all, a job whose attempt counted would be a dead letter."""
    full: LeasedJobs = []

    def kill(leased: LeasedJobs) -> Behaviour:
        full.extend(leased)
        os.kill(pid_of_holder(process, documents, leased[0]), signal.SIGKILL)
        return ok()

    gateway.default = in_a_full_batch(documents, kill)
    jobs = documents.put_many(JOBS)
    with first_call_held(gateway):
        process = supervisor(RETRY_MAX_ATTEMPTS=1)
    documents.wait_for_all(jobs, "complete", "failed", timeout=60)
    failed = {job_id for job_id in jobs if documents.row(job_id)["status"] == "failed"}
    called = {job_id for job_id in full if gateway.requests_of(job_id)}
    assert failed
    assert failed <= called, "only what was begun may be given up"
    assert all(len(gateway.requests_of(job_id)) == 1 for job_id in failed)
    assert {documents.row(job_id)["attempt_count"] for job_id in set(jobs) - failed} == {1}
    documents.wait_until_tidy()


def test_a_supervisor_that_is_stopped_in_a_batch_returns_what_was_not_begun(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    full: LeasedJobs = []

    def stop(leased: LeasedJobs) -> Behaviour:
        full.extend(leased)
        process.send(signal.SIGTERM)
        process.wait_for_event("shutdown")
        eventually(lambda: documents.servers()[0]["status"] == "draining", what="the server is draining")
        return ok()

    gateway.default = in_a_full_batch(documents, stop)
    jobs = documents.put_many(JOBS)
    with first_call_held(gateway):
        process = supervisor()
    assert process.wait() == 0
    calls = calls_of(gateway)
    for job_id in jobs:
        row = documents.row(job_id)
        assert (row["status"], row["attempt_count"]) == (("complete", 1) if calls[str(job_id)] else ("queued", 0))
    returned = [job_id for job_id in full if not calls[str(job_id)]]
    assert {documents.story(job_id) for job_id in returned} == {"created queued processing requeued"}
    documents.wait_until_tidy()


def test_a_gateway_that_fails_costs_attempts_of_no_job_but_those_that_were_called(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    def fail(leased: LeasedJobs) -> Behaviour:
        gateway.default = status(503)
        return status(503)

    gateway.default = in_a_full_batch(documents, fail)
    jobs = documents.put_many(JOBS)
    supervisor(CIRCUIT_WINDOW=6, CIRCUIT_COOLDOWN_MS=600_000)
    query = "SELECT FROM circuit_breaker WHERE state = 'open'"
    eventually(lambda: documents.conn.execute(query).fetchall(), 60, "the breaker is open")
    eventually(lambda: running(documents) == [], 60, "nothing is processing")
    calls = calls_of(gateway)
    attempts = {str(job_id): documents.row(job_id)["attempt_count"] for job_id in jobs}
    assert {job_id: number for job_id, number in attempts.items() if number} == calls


def test_a_document_that_is_refused_stops_no_batch(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    refused: LeasedJobs = []

    def refuse(leased: LeasedJobs) -> Behaviour:
        refused.extend(leased)
        return status(400)

    gateway.default = in_a_full_batch(documents, refuse)
    jobs = documents.put_many(JOBS)
    supervisor()
    documents.wait_for_all(jobs, timeout=60)
    assert Counter(documents.row(job_id)["status"] for job_id in jobs) == {"complete": JOBS - 1, "failed": 1}
    assert {documents.story(job_id) for job_id in refused} == {
        "created queued processing complete", "created queued processing failed",
    }  # fmt: skip


def test_a_result_that_cannot_be_published_fails_alone(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    blocked: LeasedJobs = []

    def block(leased: LeasedJobs) -> Behaviour:
        """In the place of a result that is not written yet."""
        begun = {request.correlation_id for request in gateway.requests[:-1]}
        blocked.append(next(job_id for job_id in leased if str(job_id) not in begun))
        documents.result(blocked[0]).mkdir()
        return ok()

    gateway.default = in_a_full_batch(documents, block)
    jobs = documents.put_many(JOBS)
    supervisor(RETRY_MAX_ATTEMPTS=1)
    documents.wait_for_all(jobs, timeout=60)
    failed = {job_id: documents.row(job_id)["error_code"] for job_id in jobs
              if documents.row(job_id)["status"] == "failed"}  # fmt: skip
    assert failed == {blocked[0]: "IO_ERROR"}
    assert set(calls_of(gateway).values()) == {1}


def test_a_database_that_restarts_during_a_batch_loses_no_result(
    supervisor: Supervisor, own_documents: OwnDocuments, own_postgres: EmbeddedPostgres, gateway: StandInGateway
) -> None:
    documents, full, back = own_documents(), threading.Event(), threading.Event()

    def wait_for_restart(leased: LeasedJobs) -> Behaviour:
        full.set()
        return held(back)

    gateway.default = in_a_full_batch(documents, wait_for_restart)
    jobs = documents.put_many(JOBS)
    process = supervisor(DATABASE_URL=own_postgres.url())
    assert full.wait(60)
    own_postgres.restart()
    back.set()
    documents = own_documents()
    documents.wait_for_all(jobs, "complete", timeout=60)
    assert set(calls_of(gateway).values()) == {1}
    assert {documents.row(job_id)["attempt_count"] for job_id in jobs} == {1}
    assert process.stop() == 0


def test_a_worker_is_replaced_after_its_number_of_jobs_also_in_the_middle_of_batches(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    jobs = documents.put_many(JOBS)
    process = supervisor(WORKER_MAX_JOBS=7)
    documents.wait_for_all(jobs, "complete", timeout=60)
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert len(process.events("worker_start")) >= JOBS // 7
