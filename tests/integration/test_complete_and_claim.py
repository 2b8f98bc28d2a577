"""A completion that claims the next job: both are committed together, or neither is."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from convertq.queue.breaker import Breaker
from convertq.queue.claim import Claim, NextClaim
from convertq.queue.completion import FinishedJob
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.errors import Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobEvents
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed
from convertq.queue.settle import Settlement
from convertq.queue.store import directory_result

from tests.conftest import Connect
from tests.files import Files
from tests.integration.test_fences import HALVES
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    begin,
    breaker,
    claimed,
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
from tests.waiting import Row

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

    def slowly(temporary: str, result: str) -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            bounded.execute("SELECT")

    monkeypatch.setattr(directory_result, "put_in_place", slowly)
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


@pytest.mark.parametrize("claims", [False, True], ids=["alone", "with the next claim"])
def test_any_error_inside_a_completion_undoes_it_and_the_claim(bounded: Conn, claims: bool) -> None:
    job, other = claimed(bounded), insert_job(bounded)
    next_claim = NextClaim(cursor(bounded), *US) if claims else None
    finished, gateway_breaker = FinishedJob(job, Completed("/x")), Breaker(config(), Log(config()))
    with pytest.raises(ZeroDivisionError), queue(bounded).completing(finished, gateway_breaker, next_claim):
        raise ZeroDivisionError
    assert bounded.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert (status_of(bounded, job), status_of(bounded, other)) == ("processing", "queued")


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
    job, _ = cursor(bounded).claim_job(*US)
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
    following, _ = cursor(bounded).claim_job(*US)
    assert following
    assert following.id == dependant
    assert events_of(bounded, dependant) == ["created", "queued", "processing"]


@pytest.mark.parametrize("half", HALVES)
def test_half_a_lease_completes_nothing_and_claims_nothing(bounded: Conn, half: str) -> None:
    """The transaction is committed: whatever the statement had changed would be seen."""
    job = claimed(bounded, attempt_count=1)
    insert_job(bounded)
    before = everything(bounded)
    completion = complete_and_claim(bounded, replace(job, **HALVES[half]))
    assert (completion.is_leased, completion.claim) == (False, None)
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
        job, next_id = claimed(bounded, attempt_count=1), insert_job(bounded, attempt_count=1)
        outcome = Completed("/x", gateway_status=200, gateway_ms=7)
        if kind == "together":
            complete_and_claim(bounded, job, outcome=outcome)
        else:
            assert queue(bounded).complete_job(FinishedJob(job, outcome))
            assert cursor(bounded).claim_job(*US).job
        rows[kind] = [written(row_of(bounded, which)) for which in (job.id, next_id)]
        rows[kind] += [last_event(bounded, which)["meta"] for which in (job, next_id)]
        rows[kind][2].pop("duration_ms")
    assert rows["plain"] == rows["together"]


def test_a_completion_that_claims_has_the_same_rules_as_the_two() -> None:
    """The three statements are apart because one for all cases costs a single job more; what they share is equal."""
    both, claim, completion = (statement(name) for name in ("complete_and_claim", "claim_job", "complete_job"))
    fence = "id = %(id)s AND leased_by = %(holder)s AND attempt_count = %(attempt)s"
    assert fence in both
    assert fence in completion
    shared = [
        "status = 'queued' AND retry_after IS NULL AND route = %(route)s AND ({claim_order})"
        " >= (%(after_priority)s, %(after_turn)s, %(after_created_at)s::timestamptz, %(after_id)s)"
        " ORDER BY {claim_order} LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED",
        "route = %(route)s AND ({claim_order}) > (-job.priority::bigint, job.turn, job.created_at, job.id)"
        " ORDER BY {claim_order} LIMIT 1",
        "retry_after <= now() AND retry_after >= %(due_after)s::timestamptz ORDER BY retry_after LIMIT 1",
        "WHERE id = %(server)s AND status = 'active') AS server_is_active",
    ]
    assert [rule for rule in shared if rule not in claim or rule not in both] == []


def statement(name: str) -> str:
    """Its text with single spaces and without comments."""
    text = (Path(__file__).parents[2] / "sql" / "queries" / f"{name}.sql").read_text()
    return " ".join(re.sub("--.*", "", text).split())


def test_a_retry_that_is_due_is_found_in_the_middle_of_a_queue(bounded: Conn, files: Files) -> None:
    job, due = claimed(bounded), insert_job(bounded, retry_after="yesterday", priority=9)
    insert_job(bounded)
    mine, log = cursor(bounded), Log(config())
    settlement = Settlement(queue(bounded), files, Breaker(config(), log), JobEvents())
    taken = []
    for _ in range(2):
        claim = settlement.settle(job, files.left(job), NextClaim(mine, *US))
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
    with Database.open(parse_database_url(database_url), "test", claims=True).connection as connection:
        claims = NextClaim(cursor(connection), *US)
        settlement = Settlement(queue(connection), files, Breaker(config(), Log(config())), JobEvents())
        claim: Claim | None = claims.cursor.claim_job(*US)
        while claim is not None and claim.job is not None:
            claim = settlement.settle(claim.job, files.converted(claim.job), claims)
        plans = connection.execute(
            "SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE name LIKE '%%complete_and_claim'"
        ).fetchall()
    assert plans == [{"custom_plans": 0, "generic_plans": 12}]
