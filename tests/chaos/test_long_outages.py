"""Outages as long as real ones: promises that take minutes to see."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.chaos.installation import DEFAULTS
from tests.chaos.length import QUICK_HEARTBEATS, SHORT
from tests.chaos.network import Network
from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held
from tests.lifecycle.conftest import OwnDocuments, documents, own_documents
from tests.lifecycle.test_outage_under_load import outage
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, eventually

__all__ = ["documents", "own_documents"]  # the fixtures of this module's tests

LEASE: dict[str, object] = {
    "WORKER_LEASE_TTL_SEC": 8 if SHORT else 20,
    "WORKER_LEASE_EXTEND_SEC": 2 if SHORT else 5,
}


@pytest.mark.timeout(240)
def test_a_database_down_for_half_a_minute_ends_nobody_and_is_back_in_use_within_seconds(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments, gateway: StandInGateway
) -> None:
    outage(10 if SHORT else 30, supervisor, own_postgres, own_documents, gateway)


@pytest.mark.timeout(300)
def test_a_network_silent_for_two_minutes_costs_the_leases_and_no_process(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments, gateway: StandInGateway
) -> None:
    release, seconds = threading.Event(), 25 if SHORT else 120
    with Network(own_postgres.port) as network:
        url = f"postgresql://postgres@127.0.0.1:{network.port}/postgres"
        process = supervisor(DATABASE_URL=url, GATEWAY_TIMEOUT_MS=10**6, **LEASE)
        everybody = process.family()
        gateway.script(*[held(release)] * 2)
        jobs = own_documents().put_many(10)
        gateway.wait_for(2)
        network.set_mode("swallow")
        over_at = time.monotonic() + seconds
        process.wait_for_event("lease_lost", count=2, timeout=40)  # the lease, and a try to connect
        eventually(lambda: time.monotonic() >= over_at, seconds + WAIT_SECONDS)
        assert process.family() == everybody
        network.set_mode("pass")
        back = time.monotonic()
        afterwards = own_documents()
        afterwards.wait_for_all(jobs, "complete", timeout=30)
        print(f"all jobs complete {time.monotonic() - back:.2f} s after {seconds} s of silence")
        assert process.family() == everybody
        release.set()
    for job_id in jobs:
        assert afterwards.story(job_id).count("complete") == 1


@pytest.mark.timeout(180)
def test_a_killed_hosts_jobs_run_on_the_other_within_a_minute(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """With the default settings, but for a short storm."""
    release, settings = threading.Event(), {**DEFAULTS, **(QUICK_HEARTBEATS if SHORT else {})}
    gateway.script(*[held(release)] * 4)
    doomed = supervisor(**settings)
    jobs = documents.put_many(4)
    gateway.wait_for(4)
    other = supervisor(**settings)
    doomed.send(signal.SIGKILL)
    killed = time.monotonic()
    documents.wait_for_all(jobs, "complete", timeout=25 if SHORT else 60)
    print(f"the killed host's jobs were complete elsewhere after {time.monotonic() - killed:.1f} s")
    release.set()
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing reclaimed processing complete"}
    assert all(str(documents.events(job_id)[-1]["meta"]["worker"]).split(":")[1] == str(other.pid) for job_id in jobs)
