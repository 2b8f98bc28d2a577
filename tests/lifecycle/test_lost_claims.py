"""A claim whose COMMIT stalls, or whose answer is lost, leaves no job with a worker that does not know of it."""

from __future__ import annotations

import os
import signal
from uuid import UUID

import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.documents import Documents
from tests.gateway_behaviours import delayed
from tests.lifecycle.conftest import OwnDocuments, ShortTimeoutsSupervisor, wait_for_call
from tests.stalled_commits import wait_until_commits_stall
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

STALLED = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name LIKE 'convertq:%/1'"


def stall_commits(documents: Documents, *, stall: bool = True) -> None:
    """As a synchronous standby does that never answers; the test's own session does not wait for it."""
    documents.conn.execute("SET synchronous_commit = local")
    names = "'nobody'" if stall else "''"
    documents.conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = {names}".encode())
    documents.conn.execute("SELECT pg_reload_conf()")
    if stall:
        wait_until_commits_stall(documents.conn.info.dsn)


def stalled_sessions(documents: Documents) -> set[int]:
    return {row["pid"] for row in documents.conn.execute(STALLED)}


def wait_until_stalled(documents: Documents) -> int:
    return eventually(lambda: stalled_sessions(documents), what="a commit of worker 1 waits for the standby").pop()


def attempts(documents: Documents, jobs: list[UUID]) -> list[int]:
    return [documents.row(job_id)["attempt_count"] for job_id in jobs]


def test_a_claim_whose_commit_stalls_is_given_back_uncounted(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    documents = own_documents()
    process = short_timeouts_supervisor(DATABASE_URL=own_postgres.url(), RETRY_MAX_ATTEMPTS=1)
    stall_commits(documents)
    jobs = documents.put_many(6)
    first = wait_until_stalled(documents)
    process.wait_for_event("db_down", count=2)
    eventually(lambda: stalled_sessions(documents) - {first}, what="worker 1 is connected again and waits again")
    stall_commits(documents, stall=False)
    documents.wait_for_all(jobs, "complete")
    assert attempts(documents, jobs) == [1] * len(jobs)


def test_a_worker_killed_while_its_claim_is_committed_leaves_no_job_behind(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    documents = own_documents()
    process = short_timeouts_supervisor(DATABASE_URL=own_postgres.url(), WORKER_CONCURRENCY=1)
    stall_commits(documents)
    job_id = documents.put()
    stalled = wait_until_stalled(documents)
    os.kill(process.children()[0], signal.SIGKILL)
    process.wait_for_event("worker_died")
    eventually(lambda: stalled not in stalled_sessions(documents), what="the old session is ended")
    stall_commits(documents, stall=False)
    assert documents.wait_for(job_id)["status"] == "complete"


def test_a_return_to_the_queue_whose_answer_is_lost_leaves_no_temporary_file(
    short_timeouts_supervisor: ShortTimeoutsSupervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
) -> None:
    """The row is changed although its process never hears of it: nobody else would know which file to remove."""
    documents = own_documents()
    gateway.default = delayed(30)
    process = short_timeouts_supervisor(DATABASE_URL=own_postgres.url(), WORKER_CONCURRENCY=1)
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    gateway.default = delayed(0)
    stall_commits(documents)
    os.kill(process.children()[0], signal.SIGKILL)
    process.wait_for_event("db_down")
    stall_commits(documents, stall=False)
    assert documents.wait_for(job_id)["status"] == "complete"
    documents.wait_until_tidy()


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_gives_back_what_the_table_says_that_it_holds_and_keeps_what_it_knows_of(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway, busy: bool
) -> None:
    """The abandoned transaction commits after the worker has connected again and requeued its jobs."""
    gateway.default = delayed(0.05)
    short_timeouts_supervisor(WORKER_CONCURRENCY=1)
    others = documents.put_many(30) if busy else []
    holder = f"{documents.servers()[0]['id']}/1"
    lost = documents.insert(
        documents.upload(), status="processing", leased_by=holder, lease_expires_at="tomorrow", attempt_count=1
    )
    row = documents.wait_for(lost)
    assert (row["status"], row["attempt_count"]) == ("complete", 1)
    assert documents.story(lost) == "created processing requeued processing complete"
    requeued = documents.wait_for_event(lost, "requeued")
    assert requeued["meta"] == {"worker": holder, "attempt": 1, "reason": "the claim was lost"}
    documents.wait_for_all(others, "complete")
    assert {documents.story(job_id) for job_id in others} <= {"created queued processing complete"}


def test_a_trial_that_is_lost_this_way_opens_the_breaker_again_at_once(
    short_timeouts_supervisor: ShortTimeoutsSupervisor, documents: Documents, gateway: StandInGateway
) -> None:
    short_timeouts_supervisor(WORKER_CONCURRENCY=1)
    holder = f"{documents.servers()[0]['id']}/1"
    with documents.conn.transaction():
        lost = documents.insert(
            documents.upload(), status="processing", leased_by=holder, lease_expires_at="tomorrow", attempt_count=1
        )
        documents.conn.execute(
            "UPDATE circuit_breaker SET state = 'half_open', opened_at = now(), cooldown = '0.2 s', probe_by = %s,"
            " trial_job = %s",
            [holder, lost],
        )
    assert documents.wait_for(lost)["status"] == "complete"
    assert len(gateway.probes) >= 1
    closed = documents.conn.execute("SELECT state FROM circuit_breaker").fetchone()
    assert closed == {"state": "closed"}
