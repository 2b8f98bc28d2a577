"""WORKER_CONCURRENCY=A..B: the pool follows the load between its limits, and no job notices."""

from __future__ import annotations

import signal
import threading

import requests
from convertq.embedded.postgres import free_port

from tests.documents import Documents
from tests.gateway_behaviours import delayed, held
from tests.lifecycle.conftest import ShortTimeoutsSupervisor, wait_for_call
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually


def probe(port: int, path: str) -> int:
    try:
        return requests.get(f"http://127.0.0.1:{port}/{path}", timeout=30).status_code
    except requests.ConnectionError:
        return 0


def concurrency(documents: Documents) -> int:
    return int(documents.servers()[-1]["concurrency"])


def test_the_pool_grows_while_jobs_wait_and_shrinks_around_a_job_that_runs(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway
) -> None:
    process = short_timeouts_supervisor(WORKER_CONCURRENCY="1..3")
    assert process.events("ready")[0]["workers"] == concurrency(documents) == 1
    answers = {documents.upload(): threading.Event() for _ in range(5)}
    for job_id, answered in answers.items():
        gateway.script_for(job_id, held(answered))
        documents.insert(job_id)
    first, second, third, *waiting = answers
    for job_id in (first, second, third):
        wait_for_call(gateway, job_id)
    eventually(lambda: concurrency(documents) == 3, what="the row of the server to show three workers")
    process.wait_for_event("grow", workers=3)
    assert [event["workers"] for event in process.events("grow")] == [2, 3]
    assert len(process.children()) == 3
    assert [documents.row(job_id)["status"] for job_id in waiting] == ["queued", "queued"]

    last = next(job_id for job_id in (first, second, third) if documents.row(job_id)["leased_by"].endswith("/3"))
    for job_id in answers:
        if job_id != last:
            answers[job_id].set()
    eventually(lambda: concurrency(documents) == 1, what="the pool to shrink")
    assert documents.row(last)["leased_by"].endswith("/3")
    eventually(lambda: len(process.children()) == 1, what="the end of the retired workers")
    answers[last].set()
    documents.wait_for_all(answers, "complete")
    assert {documents.story(job_id) for job_id in answers} == {"created queued processing complete"}
    assert process.events("worker_died") == process.events("requeue") == []
    assert process.stop() == 0


def test_a_burst_is_followed_up_and_down_across_a_reload_without_losing_a_job(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway
) -> None:
    port = free_port()
    gateway.default = delayed(0.02)
    process = short_timeouts_supervisor(WORKER_CONCURRENCY="1..4", METRICS_PORT=port)
    eventually(lambda: probe(port, "health") == probe(port, "ready") == 200, what="both probes")
    assert probe(port, "metrics") == 200
    assert probe(port, "unknown") == 404
    jobs = documents.put_many(200)
    process.wait_for_event("grow", workers=3)
    process.send(signal.SIGHUP)
    documents.wait_for_all(jobs, "complete")
    process.wait_for_event("ready", count=2)
    eventually(lambda: concurrency(documents) == 1, what="the pool to shrink")
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert process.events("worker_died") == process.events("requeue") == []
    assert process.stop() == 0
