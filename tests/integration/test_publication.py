"""The result file and the row change together: whoever lost the lease publishes nothing, and nothing is replaced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from convertq.worker import settle
from convertq.worker.breaker import Breaker
from convertq.worker.errors import Code, Failure
from convertq.worker.files import Files
from convertq.worker.job import Job
from convertq.worker.log import Log
from convertq.worker.outcome import Completed
from convertq.worker.settle import Settlement

from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    claim,
    claimed,
    complete,
    config,
    events_of,
    lose_lease,
    queue,
    row_of,
    status_of,
)

Publish = Callable[[Job, Completed], None]
MINE, OTHERS = b"<mine/>", b"<others/>"


@pytest.fixture(params=[None, (SERVER, HOLDER)], ids=["alone", "with the next claim"])
def publish(request: pytest.FixtureRequest, bounded: Conn, files: Files) -> Publish:
    """In both ways that a worker has."""
    log = Log(config())

    def settle_it(job: Job, outcome: Completed) -> None:
        Settlement(queue(bounded), files, Breaker(config(), log), log).settle(job, outcome, request.param)

    return settle_it


def converted(files: Files, job: Job) -> Completed:
    part = files.part(job.id, job.attempt, job.holder)
    part.write_bytes(MINE)
    return Completed(part, gateway_status=200, gateway_ms=1)


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def result(files: Files, job_id: UUID) -> bytes:
    assert names(files.results) == [f"{job_id}.xml"], "the temp file is gone, and nothing else is there"
    return files.result(job_id).read_bytes()


def test_the_holder_publishes_its_result_and_completes(bounded: Conn, files: Files, publish: Publish) -> None:
    job = claimed(bounded)
    publish(job, converted(files, job))
    assert status_of(bounded, job) == "complete"
    assert result(files, job.id) == MINE


def test_a_worker_that_lost_its_lease_publishes_nothing(bounded: Conn, files: Files, publish: Publish) -> None:
    job = claimed(bounded)
    outcome = converted(files, job)
    lose_lease(bounded, job)
    publish(job, outcome)
    assert status_of(bounded, job) == "processing"
    assert names(files.results) == []


def test_a_worker_that_lost_its_lease_leaves_the_result_of_the_next_holder_alone(
    bounded: Conn, files: Files, publish: Publish
) -> None:
    job = claimed(bounded)
    outcome = converted(files, job)
    taken = lose_lease(bounded, job)
    files.result(job.id).write_bytes(OTHERS)
    publish(taken, Completed(None))
    publish(job, outcome)
    assert result(files, job.id) == OTHERS
    assert events_of(bounded, job).count("complete") == 1


def test_a_whole_result_that_came_meanwhile_completes_the_job_and_is_not_replaced(
    bounded: Conn, files: Files, publish: Publish
) -> None:
    """By an attempt that was paused between its lock and its commit: whose lock, after a restart, holds nobody up."""
    job = lose_lease(bounded, claimed(bounded))
    outcome = converted(files, job)
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
    outcome = converted(files, job)
    files.result(job.id).write_bytes(b"<broken>")
    with pytest.raises(Failure, match="in the result's place") as failed:
        publish(job, outcome)
    assert failed.value.code is Code.IO_ERROR
    assert status_of(bounded, job) == "processing"
    assert files.result(job.id).read_bytes() == b"<broken>"


def test_a_disk_too_full_for_the_name_is_not_worth_a_retry(
    bounded: Conn, files: Files, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(part: Path, result: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(settle, "put_in_place", full)
    job = claimed(bounded)
    with pytest.raises(Failure, match="the disk is full") as failed:
        publish(job, converted(files, job))
    assert not failed.value.retryable
    assert row_of(bounded, job)["status"] == "processing"
