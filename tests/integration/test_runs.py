"""Runs: a job that is started over is converted again, and a leftover serves its own run only."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
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
from convertq.worker.loop.attempt import Attempt

from tests import gateway_behaviours as answers
from tests.conftest import Dirs, Environment, Supervisor
from tests.files import Files
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    claim,
    claimed,
    client_of,
    complete,
    complete_and_claim,
    config,
    cursor,
    fail,
    insert_job,
    queue,
    queued_job,
    row_of,
    run,
    set_status,
    status_of,
)
from tests.processes import run as run_convertq
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

Publish = Callable[[ClaimedJob], None]
RUN = "user.convertq.run"
AGAIN = "UPDATE jobs SET status = 'queued', result_path = NULL, attempt_count = 0, mapping = %s WHERE id = %s"


def run_of(conn: Conn, job: UUID | ClaimedJob) -> int:
    return int(row_of(conn, job)["run"])


# -- the number --


def test_a_new_job_is_in_its_first_run_and_stays_there_through_retries(conn: Conn) -> None:
    job = claimed(conn)
    assert (run_of(conn, job), job.run) == (1, 1)
    for status in ("queued", "processing", "queued", "processing"):
        set_status(conn, job.id, status)
    assert run_of(conn, job) == 1


@pytest.mark.parametrize("status", ["failed", "complete"])
def test_a_job_that_is_started_over_is_in_its_next_run(conn: Conn, status: str) -> None:
    job_id = insert_job(conn, status)
    set_status(conn, job_id, "queued")
    assert run_of(conn, job_id) == 2
    assert claim(conn).run == 2


def test_a_worker_that_could_not_read_its_claim_is_told_the_run_of_its_job(conn: Conn) -> None:
    """Its outcome is fenced by it."""
    job_id = insert_job(conn, "failed")
    set_status(conn, job_id, "queued")
    claim(conn)
    assert queue(conn).find_leased_jobs(HOLDER) == [{"id": job_id, "attempt": 1, "run": 2}]


def test_a_manual_retry_and_a_resubmission_are_runs_of_their_own(conn: Conn) -> None:
    job_id = insert_job(conn, "failed")
    assert run(conn, "retry_jobs", ids=[job_id])
    assert fail(conn, claim(conn))
    assert run(
        conn, "resubmit_job", id=job_id, upload_path="x", pretty=True, priority=0, not_before=None, deadline=None
    )
    assert run_of(conn, job_id) == 3


@pytest.mark.parametrize("sent", [1, 2, 99])
def test_no_writer_chooses_the_run(conn: Conn, sent: int) -> None:
    job_id = insert_job(conn, "complete")
    conn.execute("UPDATE jobs SET status = 'queued', run = %s WHERE id = %s", [sent, job_id])
    assert run_of(conn, job_id) == 2
    conn.execute("UPDATE jobs SET run = %s WHERE id = %s", [sent, job_id])
    assert run_of(conn, job_id) == 2


def test_the_claim_along_with_a_completion_tells_the_run(bounded: Conn) -> None:
    job_id = insert_job(bounded, "failed")
    set_status(bounded, job_id, "queued")
    along = complete_and_claim(bounded, claimed(bounded)).claim
    assert along
    following = along.job
    assert following
    assert (following.id, following.run) == (job_id, 2)


# -- the leftover, as one attempt meets it --


def leftover(files: Files, job_id: UUID, xml: bytes = b"<old/>", run: int | None = None) -> Path:
    result = files.result(job_id)
    result.write_bytes(xml)
    if run is not None:
        os.setxattr(result, RUN, str(run).encode())
    return result


@pytest.mark.parametrize(
    ("run", "mark", "used"),
    [(1, None, True), (2, None, False), (2, 1, False), (2, 2, True), (2, 3, False), (3, 2, False), (12, 12, True)],
)
def test_a_leftover_is_used_only_in_its_own_run(
    bounded: Conn, files: Files, run: int, mark: int | None, used: bool
) -> None:
    job = claimed(bounded)
    job.run = run
    leftover(files, job.id, run=mark)
    found = Attempt(client_of(config()), files, job).check_leftover()
    assert (found is not None) is used


def test_without_marks_only_the_first_run_uses_a_leftover(
    bounded: Conn, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any, **__: Any) -> bytes:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "getxattr", unsupported)
    job = claimed(bounded)
    leftover(files, job.id)
    assert Attempt(client_of(config()), files, job).check_leftover() is not None
    job.run = 2
    assert Attempt(client_of(config()), files, job).check_leftover() is None


# -- whole workers: a foreign program starts a job over --


def finished(conn: Conn, job_id: UUID, run: int = 1) -> None:
    def is_finished() -> bool:
        row = row_of(conn, job_id)
        return (row["status"], row["run"]) == ("complete", run)

    eventually(is_finished, what=f"run {run} of {job_id}")


def test_a_foreign_start_over_with_another_mapping_is_converted_again(
    supervisor: Supervisor, conn: Conn, dirs: Dirs, gateway: StandInGateway, environment: Environment
) -> None:
    gateway.default = answers.document(b"<first/>")
    supervisor(WORKER_CONCURRENCY=1, MAPPINGS_ALLOWED="pt_simon_invoice_v1,other")
    job_id = queued_job(conn, dirs)
    finished(conn, job_id)
    for number, (xml, mapping) in enumerate([(b"<second/>", "other"), (b"<third/>", "pt_simon_invoice_v1")], start=2):
        gateway.default = answers.document(xml)
        conn.execute(AGAIN, [mapping, job_id])
        finished(conn, job_id, run=number)
        assert len(gateway.requests_of(job_id)) == number
        served = run_convertq("result", str(job_id), environment=environment())
        assert served.stdout.encode() == xml
    assert [path.name for path in dirs.results.iterdir()] == [f"{job_id}.xml"]


#: holds the first completion at its commit: the file is in place, and the row says nothing of it yet
HOLD_THE_COMMIT = """
    CREATE SEQUENCE commits;
    CREATE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('commits') = 1 THEN PERFORM pg_sleep(60); END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER hold_commit AFTER UPDATE ON jobs DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.status = 'complete') EXECUTE FUNCTION hold_commit()
"""


@pytest.mark.parametrize("number", [1, 2])
def test_a_crash_between_the_link_and_the_commit_is_completed_without_a_call(
    supervisor: Supervisor, conn: Conn, dirs: Dirs, gateway: StandInGateway, number: int
) -> None:
    job_id = queued_job(conn, dirs)
    if number == 2:
        fail(conn, claim(conn))
        assert run(conn, "retry_jobs", ids=[job_id])
    conn.execute(HOLD_THE_COMMIT)
    process = supervisor(WORKER_CONCURRENCY=1)
    held = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    backend = eventually(lambda: conn.execute(held).fetchone(), what="the commit")
    assert (dirs.results / f"{job_id}.xml").exists()
    [worker] = process.children()
    os.kill(worker, signal.SIGKILL)
    assert backend is not None
    conn.execute("SELECT pg_terminate_backend(%s)", [backend["pid"]])
    finished(conn, job_id, number)
    assert len(gateway.requests_of(job_id)) == 1
    assert row_of(conn, job_id)["attempt_count"] == 2
    assert process.stop() == 0


# -- publication: what an earlier run left must not pass for this one's --


@pytest.fixture(params=[None, (SERVER, HOLDER)], ids=["alone", "with the next claim"])
def publish(request: pytest.FixtureRequest, bounded: Conn, files: Files) -> Publish:
    """In both ways that a worker has; the temporary file is made by the attempt itself, with its mark."""
    log, claim_along = Log(config()), request.param and NextClaim(cursor(bounded), *request.param)

    def publish(job: ClaimedJob) -> None:
        outcome = files.converted(job, b"<new/>")
        Settlement(queue(bounded), files, Breaker(config(), log), JobEvents()).settle(job, outcome, claim_along)

    return publish


def in_run(conn: Conn, number: int) -> ClaimedJob:
    job_id = insert_job(conn, "failed", priority=1000)
    for _ in range(number - 1):
        set_status(conn, job_id, "queued")
        job = claim(conn)
        if job.run < number:
            fail(conn, job)
    assert (job.id, job.run) == (job_id, number)
    return job


@pytest.mark.parametrize("mark", [None, 2])
def test_a_file_of_an_earlier_run_gives_way_to_the_new_result(
    bounded: Conn, files: Files, publish: Publish, mark: int | None
) -> None:
    job = in_run(bounded, 3)
    result = leftover(files, job.id, run=mark)
    publish(job)
    assert (result.read_bytes(), status_of(bounded, job)) == (b"<new/>", "complete")
    assert os.getxattr(result, RUN) == b"3"


def test_a_whole_file_of_the_same_run_is_as_good(bounded: Conn, files: Files, publish: Publish) -> None:
    job = in_run(bounded, 2)
    result = leftover(files, job.id, run=2)
    publish(job)
    assert (result.read_bytes(), status_of(bounded, job)) == (b"<old/>", "complete")


def test_a_file_of_a_later_run_is_left_alone(bounded: Conn, files: Files, publish: Publish) -> None:
    """Only a worker that was paused through a whole run meets one; its lock is gone, whatever it believes."""
    job = in_run(bounded, 2)
    result = leftover(files, job.id, run=3)
    with pytest.raises(Failure, match="in the result's place") as failed:
        publish(job)
    assert failed.value.code is Code.IO_ERROR
    assert (result.read_bytes(), status_of(bounded, job)) == (b"<old/>", "processing")


def test_a_file_that_cannot_be_told_apart_is_not_taken_for_this_runs(
    bounded: Conn, files: Files, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt removes it before its call."""
    job = in_run(bounded, 2)
    result = leftover(files, job.id)

    def unsupported(*_: Any, **__: Any) -> bytes:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "getxattr", unsupported)
    with pytest.raises(Failure, match="in the result's place"):
        publish(job)
    assert (result.read_bytes(), status_of(bounded, job)) == (b"<old/>", "processing")


def test_a_file_system_without_marks_converts_again(
    bounded: Conn, files: Files, gateway: StandInGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt's own file stays unmarked; what it leaves behind is used by nobody."""

    def unsupported(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    job = in_run(bounded, 2)
    files.source(job.id).write_bytes(b"%PDF-1.4\n%%EOF\n")
    attempt = Attempt(client_of(config(GATEWAY_URL=gateway.url)), files, job)
    outcome = attempt.convert()
    assert isinstance(outcome, Completed)
    assert outcome.result
    outcome.result.publish()
    assert attempt.check_leftover() is None


def test_an_attempt_of_a_later_run_marks_its_file_and_one_of_the_first_does_not(
    bounded: Conn, files: Files, gateway: StandInGateway
) -> None:
    marks = []
    for number in (1, 2):
        job = claimed(bounded) if number == 1 else in_run(bounded, 2)
        files.source(job.id).write_bytes(b"%PDF-1.4\n%%EOF\n")
        Attempt(client_of(config(GATEWAY_URL=gateway.url)), files, job).convert()
        marks.append(os.listxattr(files.temporary_result(job.id, job.attempt, job.holder)))
    assert marks == [[], [RUN]]


# -- what is shown --


def test_the_run_is_shown_when_it_is_not_the_first(environment: Environment, conn: Conn) -> None:
    first, second = insert_job(conn), insert_job(conn, "failed")
    set_status(conn, second, "queued")

    def lines(job_id: UUID) -> list[list[str]]:
        shown = run_convertq("show", str(job_id), environment=environment()).stdout
        return [line.split() for line in shown.splitlines()]

    assert ["run", "2"] in lines(second)
    assert not [line for line in lines(first) if line[:1] == ["run"]]
    assert '"run": 1' in run_convertq("show", str(first), "--json", environment=environment()).stdout


def test_completing_again_counts_in_the_new_run(conn: Conn) -> None:
    first = claimed(conn)
    assert complete(conn, first)
    set_status(conn, first.id, "queued")
    second = claim(conn)
    assert (second.attempt, second.run) == (2, 2)
    assert complete(conn, second)
