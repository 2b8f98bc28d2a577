"""Owns the promises of a completion that takes the next claim along: one commit, or nothing of either."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from convertq.worker import settle
from convertq.worker.breaker import Breaker
from convertq.worker.errors import Failure
from convertq.worker.files import Files
from convertq.worker.job import Job
from convertq.worker.job_queue import Claimant, Gate
from convertq.worker.log import Log
from convertq.worker.outcome import Completed
from convertq.worker.settle import Settlement

from tests.conftest import Connect
from tests.integration.test_fences import HALVES
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    begin,
    breaker,
    claimed,
    config,
    events_of,
    everything,
    insert_job,
    lose_lease,
    one,
    queue,
    register_server,
    row_of,
    run,
    set_breaker,
    status_of,
    wait_until_blocked,
)
from tests.waiting import Row

US = (SERVER, HOLDER)
MOMENTS = (
    "created_at", "queued_at", "started_at", "completed_at", "last_attempt_at", "expires_at", "lease_expires_at",
    "updated_at",
)  # fmt: skip


def written(row: Row) -> dict[str, Any]:
    """A moment by whether it is known; what makes a job another one not at all."""
    told = {name: value is not None if name in MOMENTS else value for name, value in row.items()}
    return {name: value for name, value in told.items() if name not in ("id", "sha256")}


def settled(conn: Conn, files: Files, job: Job, **settings: object) -> tuple[Job | None, Gate] | None:
    log = Log(config())
    part = files.part(job.id, job.attempt, job.holder)
    part.write_bytes(b"<mine/>")
    outcome = Completed(part, gateway_status=200, gateway_ms=1)
    return Settlement(queue(conn, **settings), files, Breaker(config(), log), log).settle(job, outcome, US)


def both(conn: Conn, job: Job, outcome: Completed, claimant: Claimant) -> Job | None:
    mine = queue(conn)
    done = mine.complete_and_claim(job, outcome, "/x", claimant)
    assert done
    return mine.commit_claim(*done)[0]


def test_the_next_job_is_claimed_in_the_commit_of_the_one_before(bounded: Conn, files: Files) -> None:
    job, later, next_id = claimed(bounded), insert_job(bounded), insert_job(bounded, priority=1)
    claim = settled(bounded, files, job)
    assert claim
    assert claim[0]
    assert (claim[0].id, claim[0].holder, claim[0].attempt) == (next_id, HOLDER, 1)
    assert claim[1].more_to_claim
    assert (status_of(bounded, job), status_of(bounded, next_id)) == ("complete", "processing")
    events = "(job_id, event_type) IN ((%s, 'complete'), (%s, 'processing'))"
    query = f"SELECT count(*), count(DISTINCT xact_id) AS commits FROM job_events WHERE {events}"
    assert one(bounded, query, job.id, next_id) == {"count": 2, "commits": 1}
    assert status_of(bounded, later) == "queued"


def test_the_new_lease_never_seems_longer_to_its_worker_than_it_is(
    bounded: Conn, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """now() is that of the transaction, which has begun before the result was put in place."""

    def slowly(part: Path, result: Path) -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            bounded.execute("SELECT")

    monkeypatch.setattr(settle, "put_in_place", slowly)
    job, next_id = claimed(bounded), insert_job(bounded)
    claim = settled(bounded, files, job)
    assert claim
    assert claim[0]
    query = "SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::float8 AS left FROM jobs WHERE id = %s"
    left = one(bounded, query, next_id)["left"]
    assert claim[0].lease_ends - time.monotonic() <= left + 0.01


def test_an_empty_queue_completes_all_the_same(bounded: Conn, files: Files) -> None:
    job = claimed(bounded)
    claim = settled(bounded, files, job)
    assert claim
    assert claim[0] is None
    assert status_of(bounded, job) == "complete"


def test_a_worker_that_lost_its_lease_claims_nothing_along(bounded: Conn, files: Files) -> None:
    job = claimed(bounded)
    lose_lease(bounded, job)
    other = insert_job(bounded)
    assert settled(bounded, files, job) is None
    assert status_of(bounded, other) == "queued"
    assert not files.result(job.id).exists()
    assert bounded.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_result_that_cannot_be_put_in_place_claims_nothing_along(bounded: Conn, files: Files) -> None:
    job, other = claimed(bounded), insert_job(bounded)
    files.result(job.id).write_bytes(b"<broken>")
    with pytest.raises(Failure, match="in the result's place"):
        settled(bounded, files, job)
    assert (status_of(bounded, job), status_of(bounded, other)) == ("processing", "queued")
    assert bounded.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_an_open_breaker_lets_the_completion_through_and_holds_the_claim(bounded: Conn, files: Files) -> None:
    job, other = claimed(bounded), insert_job(bounded)
    set_breaker(bounded, "open")
    claim = settled(bounded, files, job)
    assert claim
    assert (claim[0], claim[1].breaker) == (None, "open")
    assert (status_of(bounded, job), status_of(bounded, other)) == ("complete", "queued")


def test_a_trial_closes_the_breaker_before_anything_is_claimed(bounded: Conn, files: Files) -> None:
    first = insert_job(bounded, priority=1)
    insert_job(bounded)
    run(bounded, "register_server", server=SERVER, hostname="h", pid=1, version="1", environment="t", concurrency=1)
    set_breaker(bounded, "half_open", probe_by=HOLDER)
    job, _ = queue(bounded).claim_job(*US)
    assert job
    assert (job.id, job.is_trial) == (first, True)
    assert settled(bounded, files, job) is None
    assert (status_of(bounded, job), breaker(bounded)["state"]) == ("complete", "closed")


def test_a_job_that_waited_for_this_one_is_queued_with_it_and_claimed_next(bounded: Conn, files: Files) -> None:
    job, dependant = claimed(bounded), insert_job(bounded, "uploaded")
    bounded.execute("INSERT INTO job_dependencies VALUES (%s, %s)", [dependant, job.id])
    claim = settled(bounded, files, job)
    assert claim
    assert claim[0] is None
    assert status_of(bounded, dependant) == "queued"
    following, _ = queue(bounded).claim_job(*US)
    assert following
    assert following.id == dependant
    assert events_of(bounded, dependant) == ["created", "queued", "processing"]


@pytest.mark.parametrize("half", HALVES)
def test_half_a_lease_completes_nothing_and_claims_nothing(
    bounded: Conn, half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement itself: what the rollback after it would undo is kept here, to be seen."""
    job = claimed(bounded, attempt_count=1)
    insert_job(bounded)
    before = everything(bounded)
    monkeypatch.setattr(bounded, "rollback", bounded.commit)
    stranger = replace(job, **HALVES[half])
    assert queue(bounded).complete_and_claim(stranger, Completed(None), "/x", US) is None
    assert everything(bounded) == before


def test_whoever_was_renamed_completes_by_the_old_name_and_claims_by_the_new(bounded: Conn) -> None:
    """A supervisor that was declared dead while it slept registers anew; its worker's lease may have survived."""
    job, next_id = claimed(bounded), insert_job(bounded)
    renamed = register_server(bounded, "host:1:anew")
    us = (renamed, f"{renamed}/1")
    following = both(bounded, job, Completed(None), us)
    assert following
    assert following.id == next_id
    worker = "SELECT meta ->> 'worker' AS name FROM job_events WHERE job_id = %s AND event_type = %s"
    assert one(bounded, worker, job.id, "complete")["name"] == HOLDER
    assert one(bounded, worker, next_id, "processing")["name"] == row_of(bounded, next_id)["leased_by"] == us[1]


def test_a_completion_that_claims_writes_what_the_two_would_write(bounded: Conn, files: Files) -> None:
    """Every column of both rows, but for the moments."""
    kinds = ("plain", "together")
    rows = {}
    for kind in kinds:
        bounded.execute("UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN' WHERE status = 'queued'")
        job, next_id = claimed(bounded, attempt_count=1), insert_job(bounded, attempt_count=1)
        mine, outcome = queue(bounded), Completed(None, gateway_status=200, gateway_ms=7)
        if kind == "together":
            both(bounded, job, outcome, US)
        else:
            assert mine.complete_job(job, outcome, "/x")
            assert mine.claim_job(*US)[0]
        rows[kind] = [written(row_of(bounded, which)) for which in (job.id, next_id)]
    assert rows["plain"] == rows["together"]


def test_a_retry_that_is_due_is_found_in_the_middle_of_a_queue(bounded: Conn, files: Files) -> None:
    job, due = claimed(bounded), insert_job(bounded, retry_after="yesterday", priority=9)
    insert_job(bounded)
    mine = queue(bounded)
    log = Log(config())
    settlement = Settlement(mine, files, Breaker(config(), log), log)
    taken = []
    for _ in range(2):
        claim = settlement.settle(job, Completed(None), US)
        assert claim
        assert claim[0]
        job = claim[0]
        taken.append(job.id)
    assert due in taken


def test_a_reclaim_waits_for_the_commit_and_then_finds_nothing(
    bounded: Conn, connect: Connect, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, observer = connect(), connect()
    job, next_id = claimed(bounded), insert_job(bounded)
    bounded.execute("UPDATE jobs SET lease_expires_at = now() WHERE id = %s", [job.id])
    steps = []

    def meanwhile(part: Path, result: Path) -> None:
        steps.append(begin(lambda: other.execute("UPDATE jobs SET status = 'queued', leased_by = NULL, "
                                                 "lease_expires_at = NULL WHERE id = %s AND status = 'processing' "
                                                 "RETURNING id", [job.id]).fetchall()))  # fmt: skip
        wait_until_blocked(observer, other, steps[0])

    monkeypatch.setattr(settle, "put_in_place", meanwhile)
    settled(bounded, files, job)
    assert steps[0].result(10) == []
    assert (status_of(bounded, job), row_of(bounded, next_id)["leased_by"]) == ("complete", HOLDER)
