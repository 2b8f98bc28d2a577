"""Several gateways: each has its own protocol, its own breaker and its own jobs, and none costs another anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Environment, Supervisor
from tests.documents import PDF, Documents
from tests.gateway_behaviours import ok, status
from tests.processes import run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, eventually


@pytest.fixture
def other() -> Iterator[StandInGateway]:
    with StandInGateway() as gateway:
        yield gateway


def write(path: Path, **gateways: tuple[StandInGateway, str, str]) -> Path:
    """Each is a gateway, its mapping and more lines."""
    path.write_text(
        "".join(
            f'[gateways.{name}]\nurl = "{gateway.url}"\nmappings = ["{mapping}"]\n{more}\n'
            for name, (gateway, mapping, more) in gateways.items()
        )
    )
    return path


def test_each_gateway_has_its_protocol_and_its_breaker(
    supervisor: Supervisor, documents: Documents, environment: Environment, gateway: StandInGateway,
    other: StandInGateway, tmp_path: Path,
) -> None:  # fmt: skip
    file = write(
        tmp_path / "g.toml", plain=(gateway, "invoice", ""),
        papers=(other, "paper", 'path = "/api/convert"\nfile_field = "input"\nfields = {kind = "{mapping}-x"}\n'
                        'accept = "text/xml"\nhealth_path = "/up"\ntimeout_ms = 5000'),
    )  # fmt: skip
    settings = {
        "GATEWAYS_FILE": file, "GATEWAY_URL": None, "CIRCUIT_WINDOW": 4, "RETRY_MAX_ATTEMPTS": 9,
        "WORKER_CONCURRENCY": 2, "RETRY_BASE_DELAY_MS": 200,
    }  # fmt: skip
    other.path, other.default, other.health = "/api/convert", status(503), status(503)
    host = supervisor(**settings)
    down = [documents.put(PDF + b"%% %d" % n, mapping="paper", priority=9) for n in range(8)]
    host.wait_for_event("breaker_open", gateway="papers")

    up = [documents.put(PDF + b"%%%% %d" % n, mapping="invoice") for n in range(20)]
    documents.wait_for_all(up, "complete")
    assert documents.row(up[0])["route"] == "plain"
    probes = len(other.probes)
    stream = [documents.put(PDF + b"%%%%%% %d" % n, mapping="invoice") for n in range(30)]
    other.wait_for_probes(probes + 1)  # also while there is other work
    documents.wait_for_all(stream, "complete")

    shown = run("breaker", environment=environment(**settings)).stdout
    assert "gateway   papers" in shown
    found = json.loads(run("stats", "--json", environment=environment(**settings)).stdout)
    assert (found["breaker"]["gateway"], found["gateways"]["plain"]["state"]) == ("papers", "closed")
    metrics = run("metrics", environment=environment(**settings)).stdout
    assert 'convertq_breaker_open{gateway="papers"} 1.0' in metrics
    assert 'convertq_gateway_duration_seconds_count{gateway="plain"} 50.0' in metrics
    assert run("breaker", "open", "--gateway", "nobody", environment=environment(**settings)).returncode == 2

    other.default, other.health = ok(), status(200)
    documents.wait_for_all(down, "complete")
    call = other.requests[-1]
    assert (call.path, call.headers["accept"]) == ("/api/convert", "text/xml")
    assert (call.upload.file_field, call.upload.fields) == ("input", {"kind": "paper-x"})
    assert {probe.path for probe in other.probes} == {"/up"}
    assert documents.events(up[0])[-1]["meta"]["gateway"] == "plain"


def test_a_busy_gateway_delays_a_job_as_often_as_needed_and_fails_nothing(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, tmp_path: Path
) -> None:
    file = write(tmp_path / "g.toml", only=(gateway, "invoice", "busy_status = [503]"))
    gateway.script(*[status(503)] * 6)
    host = supervisor(GATEWAYS_FILE=file, CIRCUIT_WINDOW=2, RETRY_MAX_ATTEMPTS=2)
    job = documents.put(mapping="invoice")
    assert documents.wait_for(job, "complete")["attempt_count"] == 1
    events = [event for event in documents.events(job) if event["event_type"] == "requeued"]
    told = [(meta["reason"], meta["gateway"], meta["gateway_status"]) for meta in (event["meta"] for event in events)]
    assert told == [("busy", "only", 503)] * 6
    assert all(event["meta"]["retry_after"] for event in events)
    assert not host.events("breaker_open")


def test_a_host_claims_only_mappings_of_its_own_file_and_the_doctor_compares_them(
    supervisor: Supervisor, documents: Documents, environment: Environment, gateway: StandInGateway,
    other: StandInGateway, tmp_path: Path,
) -> None:  # fmt: skip
    old = write(tmp_path / "old.toml", one=(gateway, "invoice", ""), two=(other, "paper", ""))
    host = supervisor(GATEWAYS_FILE=old, WORKER_HEARTBEAT_SEC=1)
    documents.wait_for(documents.put(mapping="paper"), "complete")
    refused = documents.put(PDF + b"%% 1", mapping="nobody knows it")
    assert documents.wait_for(refused, "failed")["error_code"] == "GW_4XX"

    # A host with a newer file takes the mapping over; jobs that are queued by then follow it.
    done = run("breaker", "open", "--gateway", "two", environment=environment(GATEWAYS_FILE=old))
    assert done.returncode == 0, done.stderr
    queued = [documents.put(PDF + b"%%%% %d" % n, mapping="paper") for n in range(3)]
    assert documents.row(queued[0])["route"] == "two"
    new = write(tmp_path / "new.toml", one=(gateway, "invoice", ""), three=(gateway, "paper", ""))
    second = supervisor(GATEWAYS_FILE=new, WORKER_HEARTBEAT_SEC=1)
    documents.wait_for_all(queued, "complete")
    assert {documents.row(job)["route"] for job in queued} == {"three"}
    second.wait_for_event("claim", count=3)
    report = run("doctor", environment=environment(GATEWAYS_FILE=old)).stdout
    assert "are not those of this host" in report

    # Without the newer host its jobs go back to the gateway that the other one names.
    second.stop()
    later = documents.put(PDF + b"%% later", mapping="paper")
    eventually(lambda: documents.row(later)["route"] == "two", WAIT_SECONDS, "the job follows the server that is left")
    assert not host.events("failed", job_id=str(later))
