"""A gateway that is down under a full queue: the queue is held, no job pays for it, and all goes on by itself."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import ok, status
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway

JOBS = 200
WINDOW = 20
#: The backoff is longer than the time in which the breaker opens: no job can use up its attempts before that.
SETTINGS = {
    "WORKER_CONCURRENCY": 4,
    "CIRCUIT_WINDOW": WINDOW,
    "RETRY_BASE_DELAY_MS": 1000,
    "RETRY_MAX_ATTEMPTS": 5,
}


def lines(processes: Sequence[Process], event: str) -> int:
    return sum(len(process.events(event)) for process in processes)


def attempts(documents: Documents) -> int:
    row = documents.conn.execute("SELECT coalesce(sum(attempt_count), 0) AS n FROM jobs").fetchone()
    assert row is not None
    return int(row["n"])


def test_a_gateway_that_is_down_holds_the_queue_and_costs_one_window_of_attempts(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = gateway.health = status(503)
    processes = [supervisor(**SETTINGS), supervisor(**SETTINGS)]
    jobs = documents.put_many(JOBS)

    gateway.wait_for_probes(4)
    used = attempts(documents)
    assert used <= WINDOW
    gateway.wait_for_probes(8)
    assert attempts(documents) == used, "an attempt was begun while the breaker was open"
    documents.wait_for_all(jobs, "queued")

    gateway.default, gateway.health = ok(), status(200)
    documents.wait_for_all(jobs, "complete")
    assert attempts(documents) == JOBS + used
    assert lines(processes, "breaker_open") == 1
    assert lines(processes, "breaker_closed") == 1
    assert lines(processes, "failed") == 0


def test_a_gateway_that_answers_probes_but_no_job_opens_the_breaker_again_after_each_trial(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = status(503)
    processes = [supervisor(**SETTINGS), supervisor(**SETTINGS)]
    jobs = documents.put_many(JOBS)

    gateway.wait_for_probes(1)
    used = attempts(documents)
    gateway.wait_for_probes(4)
    begun = attempts(documents)  # before the probes are counted: the next one may come in between
    assert begun <= used + len(gateway.probes), "more than one job was let through by a probe"
    assert lines(processes, "breaker_closed") == 0

    gateway.default = ok()
    documents.wait_for_all(jobs, "complete")
    assert lines(processes, "breaker_open") == 1
    assert lines(processes, "breaker_closed") == 1
