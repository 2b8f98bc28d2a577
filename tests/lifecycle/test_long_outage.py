"""An outage longer than the heartbeat timeout: nobody is taken for dead, and no attempt is used up by it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Convertq, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held
from tests.lifecycle.conftest import OwnDocuments, wait_for_call
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually

TIMEOUT_SECONDS = 4
SETTINGS = {
    "WORKER_HEARTBEAT_SEC": 1, "WORKER_HEARTBEAT_TIMEOUT_SEC": TIMEOUT_SECONDS, "WORKER_CONCURRENCY": 6,
    "RETRY_MAX_ATTEMPTS": 1, "GATEWAY_TIMEOUT_MS": 60_000,
}  # fmt: skip
JOBS = 4


@contextmanager
def outage_of_the_server(own_postgres: EmbeddedPostgres) -> Iterator[None]:
    own_postgres.stop("immediate")
    yield
    own_postgres.start()


@contextmanager
def cut_of_the_network(proxy: TcpProxy) -> Iterator[None]:
    """Between everybody and a database that stays up and whose clock runs on."""
    proxy.refuse()
    proxy.cut()
    yield
    proxy.listen()


def wait_until_long_enough(seconds: float) -> None:
    over_at = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= over_at, what="the outage is longer than the heartbeat timeout")


def begun_jobs(documents: Documents, gateway: StandInGateway, answer: threading.Event) -> list[UUID]:
    gateway.default = held(answer)
    jobs = documents.put_many(JOBS)
    for job_id in jobs:
        wait_for_call(gateway, job_id)
    return jobs


def assert_each_was_done_once(documents: Documents, gateway: StandInGateway, jobs: list[UUID]) -> None:
    documents.wait_for_all(jobs)
    rows = [documents.row(job_id) for job_id in jobs]
    found = [(row["status"], row["attempt_count"], row["error_message"]) for row in rows]
    assert found == [("complete", 1, None)] * JOBS
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert [len(gateway.requests_of(job_id)) for job_id in jobs] == [1] * JOBS


def assert_nobody_was_taken_for_dead(documents: Documents, processes: list[Process]) -> None:
    assert [server["status"] for server in documents.servers()] == ["active"] * len(processes)
    assert not [event for process in processes for event in process.events("reclaim")]


def test_results_converted_while_the_database_was_down_for_long_are_completed(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments, gateway: StandInGateway
) -> None:
    answer = threading.Event()
    processes = [supervisor(DATABASE_URL=own_postgres.url(), **SETTINGS) for _ in range(2)]
    jobs = begun_jobs(own_documents(), gateway, answer)
    with outage_of_the_server(own_postgres):
        wait_until_long_enough(TIMEOUT_SECONDS + 2)
        answer.set()
        for job_id in jobs:
            eventually(lambda: any(p.events("gateway_ok", job_id=str(job_id)) for p in processes), what="converted")  # noqa: B023
    documents = own_documents()
    assert_each_was_done_once(documents, gateway, jobs)
    assert_nobody_was_taken_for_dead(documents, processes)


def test_jobs_that_run_through_a_long_outage_keep_their_lease(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments, gateway: StandInGateway
) -> None:
    """They are not settled when the database is back: an idle worker could take them from a server that is alive."""
    answer = threading.Event()
    processes = [supervisor(DATABASE_URL=own_postgres.url(), **SETTINGS) for _ in range(2)]
    jobs = begun_jobs(own_documents(), gateway, answer)
    with outage_of_the_server(own_postgres):
        wait_until_long_enough(TIMEOUT_SECONDS + 2)
    documents = own_documents()
    wait_until_long_enough(TIMEOUT_SECONDS)
    answer.set()
    assert_each_was_done_once(documents, gateway, jobs)
    assert_nobody_was_taken_for_dead(documents, processes)


def test_a_network_cut_between_all_hosts_and_a_database_that_stays_up_takes_nothing_away(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments, gateway: StandInGateway
) -> None:
    answer = threading.Event()
    documents = own_documents()
    with TcpProxy(own_postgres.port) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        processes = [supervisor(DATABASE_URL=url, **SETTINGS) for _ in range(2)]
        jobs = begun_jobs(documents, gateway, answer)
        with cut_of_the_network(proxy):
            wait_until_long_enough(TIMEOUT_SECONDS + 2)
        wait_until_long_enough(TIMEOUT_SECONDS)
        answer.set()
        assert_each_was_done_once(documents, gateway, jobs)
        assert_nobody_was_taken_for_dead(documents, processes)
        for process in processes:
            assert process.stop() == 0


def test_the_command_gives_nothing_back_right_after_an_outage(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments, gateway: StandInGateway,
    convertq: Convertq,
) -> None:  # fmt: skip
    """Its supervisor is stopped until after the command began: nobody has beaten yet."""
    answer = threading.Event()
    process = supervisor(DATABASE_URL=own_postgres.url(), **SETTINGS)
    jobs = begun_jobs(own_documents(), gateway, answer)
    with outage_of_the_server(own_postgres):
        wait_until_long_enough(TIMEOUT_SECONDS + 1)
        os.kill(process.pid, signal.SIGSTOP)
    try:
        command = convertq("reclaim", DATABASE_URL=own_postgres.url(), **SETTINGS)
        eventually(lambda: "1 server is silent; waiting 4 s to see whether it is alive" in command.tail())
    finally:
        os.kill(process.pid, signal.SIGCONT)
    eventually(lambda: "reclaimed 0 jobs" in command.tail(), what="the command ended")
    answer.set()
    assert_each_was_done_once(own_documents(), gateway, jobs)


def test_the_only_host_takes_its_own_jobs_back_after_a_crash(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """Nobody else is there to judge: the new supervisor does, when it has been heard for one heartbeat timeout."""
    gateway.script(held(threading.Event()))
    first = supervisor(WORKER_HEARTBEAT_SEC=1, WORKER_HEARTBEAT_TIMEOUT_SEC=TIMEOUT_SECONDS, WORKER_CONCURRENCY=1)
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    first.send(signal.SIGKILL)
    second = supervisor(WORKER_HEARTBEAT_SEC=1, WORKER_HEARTBEAT_TIMEOUT_SEC=TIMEOUT_SECONDS, WORKER_CONCURRENCY=1)
    row = documents.wait_for(job_id)
    assert (row["status"], row["attempt_count"]) == ("complete", 2)
    assert [server["status"] for server in documents.servers()] == ["dead", "active"]
    assert second.stop() == 0
