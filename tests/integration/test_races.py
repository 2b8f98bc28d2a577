"""Two at once: for every pair that can meet, one order wins and nothing is lost or done twice."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from convertq import sql
from convertq.queue.breaker import Breaker
from convertq.queue.database import connection as db
from convertq.queue.database import migrations
from convertq.queue.database.url import parse_database_url
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Failed

from tests.conftest import Connect
from tests.integration.test_fences import WRITES
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    begin,
    breaker,
    claim,
    claimed,
    complete,
    config,
    events_of,
    everything,
    expire_lease,
    fail,
    insert_job,
    one,
    open_database,
    queue,
    register_server,
    retry_later,
    run,
    set_breaker,
    status_of,
    together,
    try_claim,
    wait_until_blocked,
)

ROUNDS = 10
OTHER = f"{SERVER}/2"


@pytest.fixture
def here(connect: Connect) -> Conn:
    return connect()


@pytest.fixture
def there(connect: Connect) -> Conn:
    return connect()


# -- claim / claim --


def test_two_claims_of_one_job_are_one(conn: Conn, here: Conn, there: Conn) -> None:
    register_server(conn)
    for _ in range(ROUNDS):
        insert_job(conn)
        taken = together(lambda: try_claim(here).job, lambda: try_claim(there, OTHER).job)
        assert len([job for job in taken if isinstance(job, ClaimedJob)]) == 1
        assert taken.count(None) == 1


def test_a_claim_does_not_wait_for_another_claim(here: Conn, there: Conn) -> None:
    first, second = insert_job(here, priority=1), insert_job(here)
    here.execute("BEGIN")
    assert claim(here).id == first
    register_server(there, "host:2:bbbb")
    assert begin(lambda: claim(there, "host:2:bbbb/1")).result(5).id == second
    here.execute("COMMIT")


# -- reclaim / complete --


def test_a_completion_under_way_is_not_reclaimed(here: Conn, there: Conn) -> None:
    job = claimed(here)
    expire_lease(here, job)
    here.execute("BEGIN")
    assert complete(here, job)
    assert begin(lambda: queue(there).reclaim_jobs()).result(5) == []
    here.execute("COMMIT")
    assert status_of(here, job) == "complete"


def test_a_completion_that_comes_after_the_reclaim_changes_nothing(conn: Conn, here: Conn, there: Conn) -> None:
    job = claimed(here)
    expire_lease(here, job)
    there.execute("BEGIN")
    assert len(queue(there).reclaim_jobs()) == 1
    late = begin(lambda: complete(here, job))
    wait_until_blocked(conn, here)
    there.execute("COMMIT")
    assert late.result(10) is False
    assert events_of(conn, job)[-1] == "reclaimed"


def test_reclaim_and_complete_at_once_have_one_winner(conn: Conn, here: Conn, there: Conn) -> None:
    for _ in range(ROUNDS):
        job = claimed(conn)
        expire_lease(conn, job)
        done, back = together(lambda: complete(here, job), lambda: len(queue(there).reclaim_jobs()))  # noqa: B023
        assert (done, back) in [(True, 0), (False, 1)]
        assert status_of(conn, job) == ("complete" if done else "queued")
        if not done:
            complete(conn, claim(conn))


# -- a late write / the next run --


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_comes_after_a_manual_retry_does_not_meet_the_next_run(
    conn: Conn, here: Conn, there: Conn, write: str
) -> None:
    """A worker repeats a statement whose answer did not come. Behind a transaction pooler nobody can end the session of
    the first one, and in the next run the same worker may have an attempt with the same number."""
    job = claimed(here)
    here.execute("BEGIN")
    assert fail(here, job)
    run(here, "retry_jobs", ids=[job.id])
    again = claim(here)
    assert (again.id, again.holder, again.attempt) == (job.id, job.holder, job.attempt)
    late = begin(lambda: WRITES[write](queue(there), job))
    wait_until_blocked(conn, there)
    here.execute("COMMIT")
    before = everything(conn)
    assert not late.result(10)
    assert everything(conn) == before
    assert complete(conn, again)


# -- reclaim / extend --


def test_an_extension_that_comes_after_the_reclaim_is_refused(conn: Conn, here: Conn, there: Conn) -> None:
    job = claimed(here)
    expire_lease(here, job)
    there.execute("BEGIN")
    assert len(queue(there).reclaim_jobs()) == 1
    late = begin(lambda: queue(here).extend_lease(job))
    wait_until_blocked(conn, here)
    there.execute("COMMIT")
    assert late.result(10) is False


def test_reclaim_and_extend_at_once_have_one_winner(conn: Conn, here: Conn, there: Conn) -> None:
    for _ in range(ROUNDS):
        job = claimed(conn)
        expire_lease(conn, job)
        held, back = together(lambda: queue(here).extend_lease(job), lambda: len(queue(there).reclaim_jobs()))  # noqa: B023
        assert (held, back) in [(True, 0), (False, 1)]
        complete(conn, job if held else claim(conn))


def test_two_reclaims_at_once_take_each_job_once(conn: Conn, here: Conn, there: Conn) -> None:
    jobs = [insert_job(conn, "processing", lease_expires_at="yesterday") for _ in range(50)]
    taken = together(lambda: queue(here).reclaim_jobs(), lambda: queue(there).reclaim_jobs())
    found = [row["id"] for rows in taken if isinstance(rows, list) for row in rows]
    assert sorted(found) == sorted(jobs)


# -- retry / retry, retry / complete --


def test_two_manual_retries_are_one(conn: Conn, here: Conn, there: Conn) -> None:
    for _ in range(ROUNDS):
        job = insert_job(conn, "failed")
        done = together(lambda: run(here, "retry_jobs", ids=[job]), lambda: run(there, "retry_jobs", ids=[job]))  # noqa: B023
        assert sorted(map(len, filter(lambda rows: isinstance(rows, list), done))) == [0, 1]  # type: ignore[arg-type]
        assert events_of(conn, job) == ["created", "failed", "retry"]


def test_a_retry_and_a_completion_of_one_attempt_have_one_winner(conn: Conn, here: Conn, there: Conn) -> None:
    for _ in range(ROUNDS):
        job = claimed(conn)
        done = together(lambda: complete(here, job), lambda: retry_later(there, job))  # noqa: B023
        assert sorted(map(str, done)) == ["False", "True"]


# -- submit / submit --


def submit(conn: Conn, job: UUID, **columns: object) -> int:
    given = {
        "owner": "o", "original_filename": "a.pdf", "bytes": 5, "sha256": "a" * 64, "mapping": "m", "pretty": True,
        "priority": 0, "status": "queued", "upload_path": "x", "not_before": None, "deadline": None,
    }  # fmt: skip
    return len(run(conn, "submit_job", id=job, **{**given, **columns}))


def test_ten_identical_submissions_at_once_are_one_job(conn: Conn, connect: Connect) -> None:
    connections = [connect() for _ in range(10)]
    done = together(*[lambda there=there: submit(there, uuid4()) for there in connections])
    assert sorted(map(str, done)) == ["0"] * 9 + ["1"]
    assert one(conn, "SELECT count(*) FROM jobs")["count"] == 1
    assert one(conn, "SELECT count(*) FROM job_events WHERE event_type = 'created'")["count"] == 1


def test_a_submission_waits_for_the_other_and_takes_its_place_if_it_is_undone(
    conn: Conn, here: Conn, there: Conn
) -> None:
    here.execute("BEGIN")
    assert submit(here, uuid4()) == 1
    second = begin(lambda: submit(there, uuid4()))
    wait_until_blocked(conn, there)
    here.execute("ROLLBACK")
    assert second.result(10) == 1


# -- complete / dependency release --


def test_two_dependencies_that_complete_at_once_release_their_dependant_once(
    conn: Conn, here: Conn, there: Conn
) -> None:
    for _ in range(ROUNDS):
        first, second = claimed(conn), claimed(conn)
        with conn.transaction():
            dependant = insert_job(conn, "uploaded")
            for needed in (first, second):
                run(conn, "add_dependency", id=dependant, depends_on=needed.id)
        assert together(lambda: complete(here, first), lambda: complete(there, second)) == [True, True]  # noqa: B023
        assert events_of(conn, dependant) == ["created", "queued"]
        complete(conn, claim(conn))


def test_many_dependants_and_dependencies_do_not_deadlock(conn: Conn, here: Conn, there: Conn) -> None:
    for _ in range(ROUNDS):
        first, second = claimed(conn), claimed(conn)
        with conn.transaction():
            dependants = [insert_job(conn, "uploaded") for _ in range(5)]
            for dependant in dependants:
                for needed in (first, second):
                    run(conn, "add_dependency", id=dependant, depends_on=needed.id)
        assert together(lambda: complete(here, first), lambda: complete(there, second)) == [True, True]  # noqa: B023
        assert {status_of(conn, dependant) for dependant in dependants} == {"queued"}
        conn.execute("UPDATE jobs SET status = 'failed', error_code = 'X' WHERE status = 'queued'")


# -- probe / probe, and the breaker's other meetings --


def test_two_probes_are_one(conn: Conn, here: Conn, there: Conn) -> None:
    given = {"probe_timeout": 10, "cooldown_ms": 1000}
    for _ in range(ROUNDS):
        set_breaker(conn, "open", probe_after="yesterday")
        taken = together(
            lambda: run(here, "take_probe", gateway="default", holder=HOLDER, **given),
            lambda: run(there, "take_probe", gateway="default", holder=OTHER, **given),
        )
        assert sorted(map(len, filter(lambda rows: isinstance(rows, list), taken))) == [0, 1]  # type: ignore[arg-type]


def test_two_claims_of_a_half_open_breaker_are_one(conn: Conn, here: Conn, there: Conn) -> None:
    register_server(conn)
    for _ in range(ROUNDS):
        insert_job(conn)
        insert_job(conn)
        set_breaker(conn, "half_open", probe_by=HOLDER)
        taken = together(lambda: try_claim(here).job, lambda: try_claim(there, OTHER).job)
        assert [isinstance(job, ClaimedJob) for job in taken] == [True, False]


@pytest.mark.parametrize("code", [Code.GW_5XX, Code.GW_4XX])
def test_a_trial_that_fails_while_it_is_reclaimed_does_not_deadlock(
    conn: Conn, there: Conn, database_url: str, code: Code
) -> None:
    job = claimed(conn)
    set_breaker(conn, "half_open", probe_by=HOLDER, trial_job=job.id)
    job.is_trial = True
    expire_lease(conn, job)
    failure = Failure(code, "x", called=True)
    with open_database(database_url) as database:
        with Breaker(config(), Log(config())).recording(database, job, failure):
            back = begin(lambda: len(queue(there).reclaim_jobs()))
            wait_until_blocked(conn, there, back)
            JobQueue(database, config()).fail_job(job, Failed(failure, dead_letter=False))
        assert back.result(10) in (0, 1)
    assert status_of(conn, job) in ("failed", "queued")
    assert breaker(conn)["trial_job"] is None


# -- migrate / migrate --


def test_two_migrations_at_once_apply_each_once(database_url: str) -> None:
    def migrate() -> int:
        with db.connect(parse_database_url(database_url), "convertq:tests") as opened:
            return len(migrations.migrate(opened, "tenant"))

    done = together(migrate, migrate)
    assert all(isinstance(count, int) for count in done), done
    assert sum(count for count in done if isinstance(count, int)) == len(sql.migrations())


# -- requeue_worker_jobs / complete --


def test_a_requeue_that_waits_for_a_completion_takes_nothing(conn: Conn, here: Conn, there: Conn) -> None:
    job = claimed(here)
    here.execute("BEGIN")
    assert complete(here, job)
    back = begin(lambda: queue(there).requeue_worker_jobs(HOLDER, counted=True, reason="x"))
    wait_until_blocked(conn, there)
    here.execute("COMMIT")
    assert back.result(10) == []
    assert events_of(conn, job)[-1] == "complete"


def test_a_completion_that_waits_for_a_requeue_changes_nothing(conn: Conn, here: Conn, there: Conn) -> None:
    job = claimed(here)
    there.execute("BEGIN")
    assert len(queue(there).requeue_worker_jobs(HOLDER, counted=True, reason="x")) == 1
    late = begin(lambda: complete(here, job))
    wait_until_blocked(conn, here)
    there.execute("COMMIT")
    assert late.result(10) is False
    assert events_of(conn, job)[-1] == "requeued"


def test_requeue_and_reclaim_at_once_take_the_job_once(conn: Conn, here: Conn, there: Conn) -> None:
    for _ in range(ROUNDS):
        job = claimed(conn)
        expire_lease(conn, job)
        done = together(
            lambda: len(queue(here).requeue_worker_jobs(HOLDER, counted=True, reason="x")),
            lambda: len(queue(there).reclaim_jobs()),
        )
        assert sorted(map(str, done)) == ["0", "1"]
        fail(conn, claim(conn))
