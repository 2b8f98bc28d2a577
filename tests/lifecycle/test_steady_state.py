"""In the middle of a queue a job costs one commit and two round trips, and no guarantee is loosened for it."""

from __future__ import annotations

import signal
import threading
from itertools import pairwise

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held, ok, status
from tests.lifecycle.conftest import OwnDocuments, Site
from tests.stand_in_gateway import StandInGateway
from tests.tcp_proxy import TcpProxy
from tests.waiting import Row, eventually

SITE = {"WORKER_CONCURRENCY": "1"}
JOBS = 100
SPARE = 30  # packets and jobs: the start, the reclaims and the looks for due retries in between


@pytest.fixture
def proxy(own_postgres: EmbeddedPostgres) -> TcpProxy:
    return TcpProxy(own_postgres.port)


def transactions(documents: Documents, event: str) -> list[Row]:
    query = "SELECT job_id, xact_id::text FROM job_events WHERE event_type = %s ORDER BY id"
    return documents.conn.execute(query, [event]).fetchall()


def test_a_job_costs_one_commit_and_two_round_trips(
    supervisor: Supervisor, own_documents: OwnDocuments, proxy: TcpProxy
) -> None:
    documents = own_documents()
    jobs = documents.put_many(JOBS)
    with proxy:
        process = supervisor(
            DATABASE_URL=f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", WORKER_CONCURRENCY="1"
        )
        documents.wait_for_all(jobs, "complete", timeout=30)
        assert proxy.packets <= 2 * JOBS + SPARE
        assert process.stop() == 0
    completed, claimed = transactions(documents, "complete"), transactions(documents, "processing")
    assert [row["job_id"] for row in completed] == [row["job_id"] for row in claimed]
    together = sum(done["xact_id"] == taken["xact_id"] for done, taken in zip(completed, claimed[1:], strict=False))
    assert together >= JOBS - SPARE


def test_the_calls_of_a_worker_in_the_middle_of_a_queue_share_a_connection(site: Site) -> None:
    before = len(site.gateway.requests)
    site.documents.wait_for_all(site.documents.put_many(30), "complete")
    calls = site.gateway.requests[before:]
    assert sum(one.connection == other.connection for one, other in pairwise(calls)) >= 25


def test_a_failure_takes_the_plain_way_and_the_next_job_is_not_held_up(site: Site) -> None:
    site.gateway.script(ok(), status(400))
    jobs = site.documents.put_many(4)
    endings = [site.documents.wait_for(job_id)["status"] for job_id in jobs]
    assert sorted(endings) == ["complete", "complete", "complete", "failed"]


def test_a_worker_told_to_stop_claims_nothing_along_with_its_last_completion(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    release = threading.Event()
    gateway.script(held(release))
    jobs = documents.put_many(3)
    process = supervisor(WORKER_CONCURRENCY="1")
    gateway.wait_for(1)
    process.send(signal.SIGTERM)
    process.wait_for_event("shutdown")
    eventually(lambda: documents.servers()[0]["status"] == "draining", what="the server is draining")
    release.set()
    assert process.wait() == 0
    assert sorted(documents.row(job_id)["status"] for job_id in jobs) == ["complete", "queued", "queued"]
    assert len(gateway.requests) == 1


def test_a_recycled_worker_takes_no_job_with_it(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    supervisor(WORKER_CONCURRENCY="1", WORKER_MAX_JOBS="3")
    jobs = documents.put_many(10)
    documents.wait_for_all(jobs, "complete")
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert len(gateway.requests) == 10
