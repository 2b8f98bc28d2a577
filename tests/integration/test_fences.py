"""Every write after the claim names the holder and the attempt: one that fits by half changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_queue import JobQueue
from convertq.queue.outcome import Failed, RetryLater

from tests.jobs import HOLDER, SERVER, Conn, claimed, complete, everything, queue

FAILURE = Failure(Code.GW_5XX, "the gateway answered 503")
WRITES: dict[str, Callable[[JobQueue, ClaimedJob], Any]] = {
    "extend_lease": lambda queue, job: queue.extend_lease(job),
    "report_progress": lambda queue, job: queue.report_progress(job, "reading", 1, 1, 2),
    "lock_lease": lambda queue, job: queue.lock_lease(job),
    "complete_and_claim": lambda queue, job: complete(queue.database.connection, job),
    "schedule_retry": lambda queue, job: queue.schedule_retry(job, RetryLater(FAILURE, 0)),
    "fail_job": lambda queue, job: queue.fail_job(job, Failed(FAILURE, dead_letter=True)),
    "requeue_job": lambda queue, job: queue.requeue_job(job, "shutdown"),
}
#: half a lease: an earlier holder of this attempt's number, before a requeue; the holder of an earlier attempt; and the
#: holder of an attempt with this number, before the job was started over
HALVES: dict[str, dict[str, Any]] = {
    "another worker of the same host": {"holder": f"{SERVER}/2"},
    "another host": {"holder": "host:2:bbbb/1"},
    "a holder whose name begins alike": {"holder": f"{HOLDER}0"},
    "the same holder's attempt before": {"attempt": 1},
    "the same holder's attempt after": {"attempt": 3},
    "the same holder's attempt of that number in the run before": {"run": 1},
    "the same holder's attempt of that number in the run after": {"run": 3},
}


@pytest.fixture
def job(conn: Conn) -> ClaimedJob:
    """The second attempt of the second run."""
    return claimed(conn, attempt_count=1, run=2)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("write", WRITES)
def test_half_a_lease_changes_nothing(conn: Conn, job: ClaimedJob, write: str, half: str) -> None:
    before = everything(conn)
    assert not WRITES[write](queue(conn), replace(job, **HALVES[half]))
    assert everything(conn) == before


@pytest.mark.parametrize("write", WRITES)
def test_the_whole_lease_is_accepted(conn: Conn, job: ClaimedJob, write: str) -> None:
    assert WRITES[write](queue(conn), job)


@pytest.mark.parametrize("half", HALVES)
def test_a_worker_finds_out_that_it_has_half_a_lease_only(conn: Conn, job: ClaimedJob, half: str) -> None:
    known = replace(job, **HALVES[half])
    assert queue(conn).find_lost_jobs(known.holder, [known]) == {job.id: "processing"}
    assert queue(conn).find_lost_jobs(job.holder, [job]) == {}
