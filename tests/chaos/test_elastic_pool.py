"""An elastic pool follows bursts of two thousand jobs up and down, with the real minute of idleness, and loses none."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import delayed
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

JOBS = int(os.environ.get("ELASTIC_JOBS", "2000"))
LEAST, MOST = 1, 12
CONVERSION_SECONDS = 0.05
BURST_SECONDS, SHRINK_SECONDS = 300.0, 90.0


def test_two_thousand_jobs_are_followed_up_and_down_without_losing_or_interrupting_one(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = delayed(CONVERSION_SECONDS)
    process = supervisor(WORKER_CONCURRENCY=f"{LEAST}..{MOST}", CIRCUIT_WINDOW=1000)
    jobs, sizes = documents.put_many(JOBS), list[int]()

    def is_done() -> bool:
        sizes.append(int(documents.servers()[0]["concurrency"]))
        return bool(documents.conn.execute("SELECT FROM jobs WHERE status <> 'complete' LIMIT 1").fetchone() is None)

    process.wait_for_event("grow", workers=MOST // 2)
    process.send(signal.SIGHUP)
    eventually(is_done, BURST_SECONDS, "the whole burst")
    assert max(sizes) == MOST
    assert all(before <= after for before, after in pairwise(sizes))
    ended = time.monotonic()
    eventually(lambda: documents.servers()[0]["concurrency"] == LEAST, SHRINK_SECONDS, "the pool to shrink")
    assert time.monotonic() - ended > 50  # the promise: only after a minute
    eventually(lambda: len(process.children()) == LEAST, what="the end of the retired workers")
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert len(gateway.requests) == JOBS
    assert process.events("worker_died") == process.events("requeue") == []
    late = documents.put_many(10)
    documents.wait_for_all(late, "complete")
    assert process.stop() == 0
