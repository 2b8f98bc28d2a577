"""In the middle of a queue a job costs one commit and two round trips, and no guarantee is loosened for it."""

from __future__ import annotations

import re
import signal
import threading
from itertools import pairwise
from uuid import UUID

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held, ok, status
from tests.lifecycle.conftest import OwnDocuments, Site
from tests.stand_in_gateway import StandInGateway
from tests.tcp_proxy import Packet, TcpProxy
from tests.waiting import eventually

SITE = {"WORKER_CONCURRENCY": "1"}
JOBS = 100
#: What a worker sends every ten seconds, between two jobs: it depends on how long the jobs take, not on their number.
MAINTENANCE = {
    "mark_servers_dead", "reclaim_jobs", "find_running_attempts", "requeue_worker_jobs", "release_dependants",
}  # fmt: skip


@pytest.fixture
def proxy(own_postgres: EmbeddedPostgres) -> TcpProxy:
    return TcpProxy(own_postgres.port)


def worker_packets(proxy: TcpProxy) -> list[bytes]:
    """Those of the worker's own connection, which names its slot when it is opened."""
    packets: list[Packet] = list(proxy.packets)
    [connection] = {port for port, data in packets if re.search(rb"application_name\0convertq:[^\0]*/1\0", data)}
    return [data for port, data in packets if port == connection]


def statements_of(packets: list[bytes]) -> list[str]:
    """The last statement of each packet: a file of sql/queries or COMMIT, also where only its prepared name is sent.
    A claim of its own is a complete_and_claim that completes nothing."""
    prepared: dict[bytes, bytes] = {}
    found = []
    for packet in packets:
        prepared.update(re.findall(rb"(_pg3_\d+)\0-- (\w+): ", packet))
        names = re.findall(rb"\0convertq_[0-9a-f]{8}_(\w+)\0|\0-- (\w+): |\0(_pg3_\d+)\0", packet)
        name = b"".join(names[-1]) if names else b""
        completes_nothing = b"\0\0\0\x02[]" in packet
        found.append("claim" if completes_nothing else prepared.get(name, name).decode())
    return found


def settling_round_trips(statements: list[str]) -> list[str]:
    """From the first completion to the commit of the last one."""
    completions = [number for number, name in enumerate(statements) if name.startswith("complete")]
    middle = statements[completions[0] : completions[-1] + 2]
    return [name for name in middle if name not in MAINTENANCE]


def transactions(documents: Documents, jobs: list[UUID]) -> set[str]:
    """Those that claimed or completed one of these jobs."""
    query = (
        "SELECT DISTINCT xact_id::text AS id FROM job_events"
        " WHERE event_type IN ('processing', 'complete') AND job_id = ANY (%s)"
    )
    return {row["id"] for row in documents.conn.execute(query, [jobs])}


def test_a_job_costs_at_most_one_commit_and_two_round_trips(
    supervisor: Supervisor, own_documents: OwnDocuments, proxy: TcpProxy
) -> None:
    documents = own_documents()
    jobs = documents.put_many(JOBS)
    with proxy:
        process = supervisor(
            DATABASE_URL=f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", WORKER_CONCURRENCY="1"
        )
        documents.wait_for_all(jobs, "complete")
        assert process.stop() == 0
    round_trips = settling_round_trips(statements_of(worker_packets(proxy)))
    assert len(round_trips) <= 2 * JOBS, round_trips
    assert round_trips.count("COMMIT") <= JOBS
    assert len(transactions(documents, jobs)) <= JOBS + 1  # the first job is claimed by a transaction of its own
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}


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
