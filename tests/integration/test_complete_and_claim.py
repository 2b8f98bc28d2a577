"""A completion that claims the next job: both are committed together, or neither is."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from convertq.queue.breaker import Breaker
from convertq.queue.claim import Claim, ClaimCursor, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.database import answers
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.errors import Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobEvents
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed
from convertq.queue.settle import Settlement
from convertq.queue.store import directory, directory_result
from convertq.worker.loop.worker_slot import WorkerSlot
from convertq.worker.supervisor.permits import LARGE_POOL, PERMITS
from convertq.worker.supervisor.status_table import WorkerStatusTable

from tests.conftest import Connect
from tests.files import Files
from tests.integration.test_fences import HALVES
from tests.jobs import (
    HOLDER,
    REGISTRATION,
    SERVER,
    Conn,
    begin,
    breaker,
    claimed,
    complete,
    complete_and_claim,
    config,
    cursor,
    events_of,
    everything,
    insert_job,
    last_event,
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
from tests.waiting import WAIT_SECONDS, Row, eventually

US = (SERVER, HOLDER)
TIMESTAMPS = (
    "created_at", "queued_at", "started_at", "completed_at", "last_attempt_at", "expires_at", "lease_expires_at",
    "updated_at",
)  # fmt: skip


def written(row: Row) -> dict[str, Any]:
    """The columns of a row, timestamps by whether they are set, without what is different in every job."""
    columns = {name: value is not None if name in TIMESTAMPS else value for name, value in row.items()}
    return {name: value for name, value in columns.items() if name not in ("id", "sha256")}


def settled(conn: Conn, files: Files, job: ClaimedJob, **settings: object) -> Claim | None:
    log = Log(config())
    outcome = files.converted(job)
    settlement = Settlement(queue(conn, **settings), files, Breaker(config(), log), JobEvents())
    return settlement.settle(job, outcome, NextClaim(cursor(conn, **settings), *US))


def test_the_next_job_is_claimed_in_the_commit_of_the_one_before(bounded: Conn, files: Files) -> None:
    job, later, next_id = claimed(bounded), insert_job(bounded), insert_job(bounded, priority=1)
    claim = settled(bounded, files, job)
    assert claim
    assert claim.job
    assert (claim.job.id, claim.job.holder, claim.job.attempt) == (next_id, HOLDER, 1)
    assert claim.state.left_over
    assert (status_of(bounded, job), status_of(bounded, next_id)) == ("complete", "processing")
    events = "(job_id, event_type) IN ((%s, 'complete'), (%s, 'processing'))"
    query = f"SELECT count(*), count(DISTINCT xact_id) AS commits FROM job_events WHERE {events}"
    assert one(bounded, query, job.id, next_id) == {"count": 2, "commits": 1}
    assert status_of(bounded, later) == "queued"


def test_the_new_lease_never_seems_longer_to_its_worker_than_it_is(
    bounded: Conn, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """now() is that of the transaction, which has begun before the result was put in place."""

    def slowly(temporary: str, result: str) -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            bounded.execute("SELECT")

    monkeypatch.setattr(directory_result, "put_in_place", slowly)
    job, next_id = claimed(bounded), insert_job(bounded)
    claim = settled(bounded, files, job)
    assert claim
    assert claim.job
    query = "SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::float8 AS left FROM jobs WHERE id = %s"
    left = one(bounded, query, next_id)["left"]
    assert claim.job.lease_ends - time.monotonic() <= left + 0.01


def test_an_empty_queue_completes_all_the_same(bounded: Conn, files: Files) -> None:
    job = claimed(bounded)
    claim = settled(bounded, files, job)
    assert claim
    assert claim.job is None
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


@pytest.mark.parametrize("claims", [False, True], ids=["alone", "with the next claim"])
def test_any_error_inside_a_completion_undoes_it_and_the_claim(bounded: Conn, claims: bool) -> None:
    job, other = claimed(bounded), insert_job(bounded)
    next_claim = NextClaim(cursor(bounded), *US) if claims else None
    finished, gateway_breaker = [FinishedJob(job, Completed("/x"))], Breaker(config(), Log(config()))
    with pytest.raises(ZeroDivisionError), queue(bounded).completing(finished, gateway_breaker, next_claim):
        raise ZeroDivisionError
    assert bounded.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert (status_of(bounded, job), status_of(bounded, other)) == ("processing", "queued")


def test_an_open_breaker_lets_the_completion_through_and_holds_the_claim(bounded: Conn, files: Files) -> None:
    job, other = claimed(bounded), insert_job(bounded)
    set_breaker(bounded, "open")
    claim = settled(bounded, files, job)
    assert claim
    assert (claim.job, claim.state.breaker) == (None, "open")
    assert (status_of(bounded, job), status_of(bounded, other)) == ("complete", "queued")


def test_a_trial_closes_the_breaker_before_anything_is_claimed(bounded: Conn, files: Files) -> None:
    first = insert_job(bounded, priority=1)
    insert_job(bounded)
    run(bounded, "register_server", **REGISTRATION)
    set_breaker(bounded, "half_open", probe_by=HOLDER)
    job = cursor(bounded).claim_job(*US).job
    assert job
    assert (job.id, job.is_trial) == (first, True)
    assert settled(bounded, files, job) is None
    assert (status_of(bounded, job), breaker(bounded)["state"]) == ("complete", "closed")


def test_a_job_that_waited_for_this_one_is_queued_with_it_and_claimed_next(bounded: Conn, files: Files) -> None:
    job, dependant = claimed(bounded), insert_job(bounded, "uploaded")
    bounded.execute("INSERT INTO job_dependencies VALUES (%s, %s)", [dependant, job.id])
    claim = settled(bounded, files, job)
    assert claim
    assert claim.job is None
    assert status_of(bounded, dependant) == "queued"
    following = cursor(bounded).claim_job(*US).job
    assert following
    assert following.id == dependant
    assert events_of(bounded, dependant) == ["created", "queued", "processing"]


@pytest.mark.parametrize("half", HALVES)
def test_half_a_lease_completes_nothing_and_claims_nothing(bounded: Conn, half: str) -> None:
    """The transaction is committed: whatever the statement had changed would be seen."""
    job = claimed(bounded, attempt_count=1, run=2)
    insert_job(bounded)
    before = everything(bounded)
    completion = complete_and_claim(bounded, replace(job, **HALVES[half]))
    assert (completion.leased, completion.claim) == (set(), None)
    assert everything(bounded) == before


def test_a_worker_that_was_renamed_completes_by_the_old_name_and_claims_by_the_new(bounded: Conn) -> None:
    """A supervisor that was marked dead while it slept registers again; its worker's lease may have survived."""
    job, next_id = claimed(bounded), insert_job(bounded)
    renamed = register_server(bounded, "host:1:bbbb")
    us = (renamed, f"{renamed}/1")
    along = complete_and_claim(bounded, job, *us).claim
    assert along
    following = along.job
    assert following
    assert following.id == next_id
    worker = "SELECT meta ->> 'worker' AS name FROM job_events WHERE job_id = %s AND event_type = %s"
    assert one(bounded, worker, job.id, "complete")["name"] == HOLDER
    assert one(bounded, worker, next_id, "processing")["name"] == row_of(bounded, next_id)["leased_by"] == us[1]


def test_a_completion_that_claims_writes_what_the_two_would_write(bounded: Conn, files: Files) -> None:
    """Every column of both rows, except the timestamps."""
    kinds = ("plain", "together")
    rows = {}
    for kind in kinds:
        bounded.execute("UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN' WHERE status = 'queued'")
        job, next_id = claimed(bounded, attempt_count=1, run=2), insert_job(bounded, attempt_count=1)
        outcome = Completed("/results/x.xml", gateway_status=200, gateway_ms=7)
        if kind == "together":
            complete_and_claim(bounded, job, outcome=outcome)
        else:
            assert complete(bounded, job, gateway_status=200, gateway_ms=7)
            assert cursor(bounded).claim_job(*US).job
        rows[kind] = [written(row_of(bounded, which)) for which in (job.id, next_id)]
        rows[kind] += [last_event(bounded, which)["meta"] for which in (job, next_id)]
        rows[kind][2].pop("duration_ms")
    assert rows["plain"] == rows["together"]


def batch(conn: Conn, number: int) -> list[ClaimedJob]:
    """So many jobs that one worker has claimed."""
    return [claimed(conn) for _ in range(number)]


def test_eight_jobs_are_completed_and_eight_claimed_in_the_claims_order(bounded: Conn) -> None:
    jobs, waiting = batch(bounded, 8), [insert_job(bounded, priority=n % 3) for n in range(9)]
    completion = complete_and_claim(bounded, jobs, wanted=8)
    assert completion.leased == {job.id for job in jobs}
    assert completion.claim
    expected = sorted(range(9), key=lambda n: (-(n % 3), n))[:8]
    assert [job.id for job in completion.claim.jobs] == [waiting[n] for n in expected]
    assert {status_of(bounded, job) for job in jobs} == {"complete"}
    assert {(job.holder, job.attempt, job.is_trial) for job in completion.claim.jobs} == {(HOLDER, 1, False)}
    assert completion.claim.state.left_over == 1
    commits = "SELECT count(DISTINCT xact_id) AS number FROM job_events WHERE event_type = 'complete'"
    assert one(bounded, commits)["number"] == 1


def test_fewer_jobs_than_wanted_are_all_claimed(bounded: Conn) -> None:
    [job], waiting = batch(bounded, 1), [insert_job(bounded) for _ in range(3)]
    claim = complete_and_claim(bounded, job, wanted=8).claim
    assert claim
    assert [found.id for found in claim.jobs] == waiting
    assert claim.state.left_over == 0


@pytest.mark.parametrize("half", HALVES)
def test_a_job_of_a_batch_that_was_lost_stops_no_other_and_nothing_is_claimed(bounded: Conn, half: str) -> None:
    first, lost, last = (claimed(bounded, attempt_count=1, run=2) for _ in range(3))
    other = insert_job(bounded)
    before = row_of(bounded, lost)
    completion = complete_and_claim(bounded, [first, replace(lost, **HALVES[half]), last], wanted=8)
    assert (completion.leased, completion.claim) == ({first.id, last.id}, None)
    assert row_of(bounded, lost) == before
    assert events_of(bounded, lost)[-1] == "processing"
    assert {status_of(bounded, job) for job in (first, last)} == {"complete"}
    assert status_of(bounded, other) == "queued"


def test_each_job_of_a_batch_has_its_own_result_and_event(bounded: Conn, files: Files) -> None:
    jobs = batch(bounded, 3)
    finished = [FinishedJob(job, files.converted(job)) for job in jobs]
    Settlement(queue(bounded), files, Breaker(config(), Log(config())), JobEvents()).complete(finished)
    for job in jobs:
        assert row_of(bounded, job)["result_path"] == str(files.result(job.id))
        assert files.result(job.id).exists()
        assert last_event(bounded, job)["meta"]["attempt"] == job.attempt


def test_the_results_of_a_batch_are_synced_once_in_place_and_before_the_commit(
    bounded: Conn, connect: Connect, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, other, synced = batch(bounded, 3), connect(), []

    def look(folder: str) -> None:
        synced.append((folder, [files.result(job.id).exists() for job in jobs], status_of(other, jobs[0])))

    monkeypatch.setattr(directory, "sync_directory", look)
    finished = [FinishedJob(job, files.converted(job)) for job in jobs]
    Settlement(queue(bounded), files, Breaker(config(), Log(config())), JobEvents()).complete(finished)
    assert synced == [(str(files.results), [True, True, True], "processing")]


def test_a_worker_of_a_large_pool_has_a_permit_while_it_commits_and_none_while_it_waits_for_a_lock(
    bounded: Conn, connect: Connect, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, found = WorkerStatusTable(LARGE_POOL + 1), []
    others = range(2, PERMITS + 1)  # all permits but one
    assert all(table.permits.take(slot) for slot in others)

    def is_one_free() -> bool:
        is_free = table.permits.take(LARGE_POOL, wait_seconds=0)
        table.permits.give_back(LARGE_POOL)
        return is_free

    settlement = Settlement(
        queue(bounded), files, Breaker(config(), Log(config())), JobEvents(), WorkerSlot(table, 1).permit
    )
    monkeypatch.setattr(directory, "sync_directory", lambda _: found.append(is_one_free()))
    jobs = batch(bounded, 2)
    monkeypatch.setattr(answers, "SLOW_ANSWER_SECONDS", WAIT_SECONDS)
    settlement.settle(jobs[0], files.converted(jobs[0]))
    assert (found, is_one_free()) == ([False], True)

    monkeypatch.setattr(answers, "SLOW_ANSWER_SECONDS", 0.01)
    there = connect()
    there.execute("BEGIN")
    there.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [jobs[1].id])
    step = begin(lambda: settlement.settle(jobs[1], files.converted(jobs[1])))
    wait_until_blocked(connect(), bounded, step)
    eventually(is_one_free)
    there.execute("COMMIT")
    step.result(WAIT_SECONDS)
    assert status_of(bounded, jobs[1]) == "complete"
    assert is_one_free()


def test_a_batch_with_a_result_that_cannot_be_published_is_left_as_it_was(bounded: Conn, files: Files) -> None:
    jobs, other = batch(bounded, 3), insert_job(bounded)
    finished = [FinishedJob(job, files.converted(job)) for job in jobs]
    files.result(jobs[1].id).write_bytes(b"<broken>")
    settlement = Settlement(queue(bounded), files, Breaker(config(), Log(config())), JobEvents())
    with pytest.raises(Failure, match="in the result's place"):
        settlement.complete(finished, NextClaim(cursor(bounded), *US, wanted=8))
    assert {status_of(bounded, job) for job in jobs} == {"processing"}
    assert status_of(bounded, other) == "queued"


def test_of_a_batch_only_what_is_leased_is_published(bounded: Conn, files: Files) -> None:
    kept, lost = batch(bounded, 2)
    finished = [FinishedJob(job, files.converted(job)) for job in (kept, lost)]
    taken = lose_lease(bounded, lost)
    Settlement(queue(bounded), files, Breaker(config(), Log(config())), JobEvents()).complete(finished)
    assert (files.result(kept.id).exists(), files.result(lost.id).exists()) == (True, False)
    assert row_of(bounded, lost)["leased_by"] == taken.holder


def test_a_retry_that_is_due_is_found_in_the_middle_of_a_queue(bounded: Conn, files: Files) -> None:
    job, due = claimed(bounded), insert_job(bounded, retry_after="yesterday", priority=9)
    insert_job(bounded)
    mine, log = cursor(bounded), Log(config())
    settlement = Settlement(queue(bounded), files, Breaker(config(), log), JobEvents())
    taken = []
    for _ in range(2):
        claim = settlement.settle(job, files.left(job), NextClaim(mine, *US))
        assert claim
        assert claim.job
        job = claim.job
        taken.append(job.id)
    assert due in taken


def test_a_reclaim_waits_for_the_commit_and_then_finds_nothing(
    bounded: Conn, connect: Connect, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, observer = connect(), connect()
    job, next_id = claimed(bounded), insert_job(bounded)
    bounded.execute("UPDATE jobs SET lease_expires_at = now() WHERE id = %s", [job.id])
    steps = []

    def meanwhile(temporary: str, result: str) -> None:
        steps.append(begin(lambda: other.execute("UPDATE jobs SET status = 'queued', leased_by = NULL, "
                                                 "lease_expires_at = NULL WHERE id = %s AND status = 'processing' "
                                                 "RETURNING id", [job.id]).fetchall()))  # fmt: skip
        wait_until_blocked(observer, other, steps[0])

    monkeypatch.setattr(directory_result, "put_in_place", meanwhile)
    settled(bounded, files, job)
    assert steps[0].result(10) == []
    assert (status_of(bounded, job), row_of(bounded, next_id)["leased_by"]) == ("complete", HOLDER)


def test_a_worker_plans_its_largest_statement_once(conn: Conn, database_url: str, files: Files) -> None:
    """By its estimates PostgreSQL would choose to plan it again for every job, which costs as much as running it."""
    register_server(conn)
    for _ in range(12):
        insert_job(conn)
    database = Database.open(parse_database_url(database_url), "test", claims=True)
    with database.connection as connection:
        claims = NextClaim(ClaimCursor(database, config()), *US)
        settlement = Settlement(JobQueue(database, config()), files, Breaker(config(), Log(config())), JobEvents())
        claim: Claim | None = claims.cursor.claim_job(*US)
        while claim is not None and claim.job is not None:
            claim = settlement.settle(claim.job, files.converted(claim.job), claims)
        plans = connection.execute(
            "SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE name LIKE '%%complete_and_claim'"
        ).fetchall()
    assert plans == [{"custom_plans": 0, "generic_plans": 13}]
