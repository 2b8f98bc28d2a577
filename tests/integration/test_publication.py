"""The result file and the row change together: a worker without the lease publishes nothing and replaces nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from convertq.queue.breaker import Breaker
from convertq.queue.claim import NextClaim
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobEvents
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed
from convertq.queue.settle import Settlement
from convertq.queue.store import directory_result

from tests.files import Files
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    claim,
    claimed,
    complete,
    config,
    cursor,
    events_of,
    lose_lease,
    queue,
    row_of,
    status_of,
)

Publish = Callable[[ClaimedJob, Completed], None]
MINE, OTHERS = b"<mine/>", b"<others/>"


@pytest.fixture(params=[None, (SERVER, HOLDER)], ids=["alone", "with the next claim"])
def publish(request: pytest.FixtureRequest, bounded: Conn, files: Files) -> Publish:
    """In both ways that a worker has."""
    log, claim_along = Log(config()), request.param and NextClaim(cursor(bounded), *request.param)

    def settle_it(job: ClaimedJob, outcome: Completed) -> None:
        Settlement(queue(bounded), files, Breaker(config(), log), JobEvents()).settle(job, outcome, claim_along)

    return settle_it


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def result(files: Files, job_id: UUID) -> bytes:
    assert names(files.results) == [f"{job_id}.xml"], "the temporary file is gone, and nothing else is there"
    return files.result(job_id).read_bytes()


def test_the_holder_publishes_its_result_and_completes(bounded: Conn, files: Files, publish: Publish) -> None:
    job = claimed(bounded)
    publish(job, files.converted(job))
    assert status_of(bounded, job) == "complete"
    assert result(files, job.id) == MINE


def test_a_worker_that_lost_its_lease_publishes_nothing(bounded: Conn, files: Files, publish: Publish) -> None:
    job = claimed(bounded)
    outcome = files.converted(job)
    lose_lease(bounded, job)
    publish(job, outcome)
    assert status_of(bounded, job) == "processing"
    assert names(files.results) == []


def test_a_worker_that_lost_its_lease_leaves_the_result_of_the_next_holder_alone(
    bounded: Conn, files: Files, publish: Publish
) -> None:
    job = claimed(bounded)
    outcome = files.converted(job)
    taken = lose_lease(bounded, job)
    files.result(job.id).write_bytes(OTHERS)
    publish(taken, files.left(taken))
    publish(job, outcome)
    assert result(files, job.id) == OTHERS
    assert events_of(bounded, job).count("complete") == 1


def test_a_whole_result_that_came_meanwhile_completes_the_job_and_is_not_replaced(
    bounded: Conn, files: Files, publish: Publish
) -> None:
    """By an attempt that was paused between its lock and its commit: whose lock, after a restart, holds nobody up."""
    job = lose_lease(bounded, claimed(bounded))
    outcome = files.converted(job)
    files.result(job.id).write_bytes(OTHERS)
    publish(job, outcome)
    assert status_of(bounded, job) == "complete"
    assert result(files, job.id) == OTHERS


def test_a_completion_of_an_earlier_run_is_not_taken_for_this_one(bounded: Conn, files: Files) -> None:
    """Run again, the job may come to the same holder under the same number."""
    first = claimed(bounded)
    assert complete(bounded, first)
    bounded.execute(
        "UPDATE jobs SET status = 'queued', result_path = NULL, attempt_count = 0 WHERE id = %s", [first.id]
    )
    second = claim(bounded)
    assert (second.holder, second.attempt) == (first.holder, first.attempt)
    lose_lease(bounded, second)
    assert not queue(bounded).was_completed(second)


def test_something_else_in_the_results_place_is_left_alone_and_said(
    bounded: Conn, files: Files, publish: Publish
) -> None:
    job = claimed(bounded)
    outcome = files.converted(job)
    files.result(job.id).write_bytes(b"<broken>")
    with pytest.raises(Failure, match="in the result's place") as failed:
        publish(job, outcome)
    assert failed.value.code is Code.IO_ERROR
    assert status_of(bounded, job) == "processing"
    assert files.result(job.id).read_bytes() == b"<broken>"


def test_a_disk_too_full_for_the_name_is_not_worth_a_retry(
    bounded: Conn, files: Files, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(temporary: str, result: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(directory_result, "put_in_place", full)
    job = claimed(bounded)
    with pytest.raises(Failure, match="the disk is full") as failed:
        publish(job, files.converted(job))
    assert not failed.value.retryable
    assert row_of(bounded, job)["status"] == "processing"
