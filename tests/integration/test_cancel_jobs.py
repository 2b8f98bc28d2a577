"""Cancelling: an unfinished job ends at once, its worker can write nothing more, and it can be started over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import UUID

import pytest
from convertq.queue.breaker import Breaker
from convertq.queue.bulk import BulkProgress
from convertq.queue.cancel import Cancelling, CancelVerdict, discard_results, find_active_jobs
from convertq.queue.counters import Counters, aggregate_counters
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobCancelled, JobEvent, JobEvents
from convertq.queue.log.lines import Log
from convertq.queue.manual_retry import retry_job
from convertq.queue.queue_events import Operator
from convertq.queue.settle import Settlement
from convertq.queue.status import ACTIVE, TERMINAL, JobStatus
from convertq.queue.store import open_store

from tests.conftest import Connect, Dirs
from tests.files import Files
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
    cursor,
    database,
    events_of,
    expire_lease,
    fail,
    insert_job,
    last_event,
    one,
    queue,
    queued_job,
    register_server,
    retry_later,
    row_of,
    run,
    set_breaker,
    set_status,
    status_of,
    together,
    wait_until_blocked,
)
from tests.waiting import WAIT_SECONDS

BY = "ana@host"
ROUNDS = 10


@pytest.fixture
def here(connect: Connect) -> Conn:
    return connect()


@pytest.fixture
def there(connect: Connect) -> Conn:
    return connect()


def cancel(conn: Conn, *jobs: UUID) -> list[UUID]:
    return [row["id"] for row in run(conn, "cancel_jobs", ids=list(jobs), by=BY)]


def cancelling(conn: Conn, dirs: Dirs, *, cascade: bool = False) -> Cancelling:
    store = open_store(config(UPLOADS_DIR=dirs.uploads, RESULTS_DIR=dirs.results))
    return Cancelling(database(conn), store, Operator(BY), cascade=cascade)


# -- one statement --


@pytest.mark.parametrize("status", ACTIVE)
def test_an_unfinished_job_becomes_cancelled_with_its_event(conn: Conn, status: JobStatus) -> None:
    job = insert_job(conn, status)
    attempt = row_of(conn, job)["attempt_count"]
    assert cancel(conn, job) == [job]
    row = row_of(conn, job)
    assert (row["status"], row["leased_by"], row["lease_expires_at"]) == ("cancelled", None, None)
    assert row["cancelled_at"] is not None
    assert (attempt, row["attempt_count"]) == ((1, 0) if status is JobStatus.PROCESSING else (0, 0))
    event = last_event(conn, job)
    running = {"worker": HOLDER, "attempt": 1}
    assert event["event_type"] == "cancelled"
    assert event["meta"] == {"by": BY, **(running if status is JobStatus.PROCESSING else {"from": status})}
    assert cancel(conn, job) == []
    assert events_of(conn, job).count("cancelled") == 1


@pytest.mark.parametrize("status", TERMINAL)
def test_a_job_that_has_ended_stays_as_it_is(conn: Conn, status: JobStatus) -> None:
    job = insert_job(conn, status)
    before = row_of(conn, job)
    assert cancel(conn, job) == []
    assert row_of(conn, job) == before


def test_the_fence_refuses_every_later_write_of_the_worker(conn: Conn) -> None:
    job = claimed(conn)
    mine = queue(conn)
    assert mine.report_progress(job, "reading", 10, 1, 10)
    cancel(conn, job.id)
    before = row_of(conn, job)
    assert not mine.extend_lease(job)
    assert not mine.report_progress(job, "writing", 90, 1, 10)
    assert not mine.requeue_job(job, "shutdown")
    assert not retry_later(conn, job)
    assert not fail(conn, job)
    assert not complete(conn, job)
    assert mine.requeue_worker_jobs(HOLDER, counted=True, reason="worker died") == []
    assert row_of(conn, job) == before
    assert one(conn, "SELECT count(*) FROM job_progress")["count"] == 0
    assert mine.find_lost_jobs(HOLDER, [job]) == {job.id: "cancelled"}
    assert mine.find_lost_jobs(HOLDER, [claimed(conn)]) == {}


def test_another_program_that_only_sets_the_status_is_served_too(conn: Conn) -> None:
    job = claimed(conn)
    with conn.transaction():
        conn.execute("SELECT listen_for_cancels()")
    set_status(conn, job.id, "cancelled")
    conn.execute("UPDATE jobs SET cancelled_at = NULL WHERE id = %s", [job.id])
    assert row_of(conn, job)["cancelled_at"] is not None
    assert last_event(conn, job)["event_type"] == "cancelled"
    notified = [(notify.channel, notify.payload) for notify in conn.notifies(timeout=5, stop_after=1)]
    assert notified == [("convertq_public_cancel", HOLDER)]
    set_status(conn, job.id, "uploaded")
    assert (status_of(conn, job), row_of(conn, job)["run"]) == ("uploaded", 2)
    assert row_of(conn, job)["cancelled_at"] is None
    assert last_event(conn, job)["meta"].items() >= {"by": "trigger", "from": "cancelled", "to": "uploaded"}.items()
    assert_counters_are_exact(conn)


def test_only_a_job_that_is_being_converted_notifies_anybody(conn: Conn) -> None:
    conn.execute("SELECT listen_for_cancels()")
    job, waiting = claimed(conn), insert_job(conn)
    cancel(conn, waiting, job.id)
    assert [notify.payload for notify in conn.notifies(timeout=0.3)] == [HOLDER]


def test_a_cancel_of_the_trial_ends_the_trial(conn: Conn) -> None:
    job = claimed(conn)
    set_breaker(conn, "half_open", probe_by=HOLDER, trial_job=job.id)
    cancel(conn, job.id)
    assert {name: breaker(conn)[name] for name in ("state", "trial_job", "probe_by")} == {
        "state": "open", "trial_job": None, "probe_by": None,
    }  # fmt: skip


def assert_counters_are_exact(conn: Conn) -> None:
    for _ in range(2):  # from the events, and aggregated
        counters = Counters(database(conn))
        real = {row["status"]: row["count"] for row in conn.execute("SELECT status, count(*) FROM jobs GROUP BY 1")}
        assert {status: counters("jobs", status) for status in JobStatus} == {
            status: real.get(status, 0) for status in JobStatus
        }
        cancels = one(conn, "SELECT count(*) FROM job_events WHERE event_type = 'cancelled'")["count"]
        assert counters("jobs_cancelled") == cancels
        aggregate_counters(database(conn))


def test_the_counters_stay_exact(conn: Conn, dirs: Dirs) -> None:
    waiting, running, stored = insert_job(conn), claimed(conn).id, insert_job(conn, "uploaded")
    cancel(conn, waiting, running, stored)
    run(conn, "retry_jobs", ids=[waiting, running])
    cancel(conn, waiting)
    assert_counters_are_exact(conn)
    assert Counters(database(conn))("retries") == 0


# -- started over --


def test_a_retry_queues_it_again_in_its_next_run(conn: Conn, dirs: Dirs) -> None:
    job = queued_job(conn, dirs)
    store = open_store(config(UPLOADS_DIR=dirs.uploads, RESULTS_DIR=dirs.results))
    cancel(conn, job)
    assert retry_job(database(conn), store, job)
    row = row_of(conn, job)
    assert (row["status"], row["run"], row["cancelled_at"], row["attempt_count"]) == ("queued", 2, None, 0)
    assert last_event(conn, job)["meta"] == {"reason": "manual", "from": "cancelled"}
    assert complete(conn, claim(conn))


def test_a_cancelled_job_waits_again_for_what_it_depends_on(conn: Conn, dirs: Dirs) -> None:
    needed, dependant = queued_job(conn, dirs), queued_job(conn, dirs, status="uploaded")
    run(conn, "add_dependency", id=dependant, depends_on=needed)
    cancel(conn, dependant)
    assert [row["id"] for row in run(conn, "retry_jobs", ids=[dependant])] == [dependant]
    assert (status_of(conn, dependant), row_of(conn, dependant)["run"]) == ("uploaded", 2)
    assert_counters_are_exact(conn)
    assert complete(conn, claim(conn))
    assert (status_of(conn, dependant), row_of(conn, dependant)["run"]) == ("queued", 2)
    assert events_of(conn, dependant) == ["created", "cancelled", "retry", "queued"]
    assert_counters_are_exact(conn)


def test_a_retry_that_meets_the_completion_of_its_dependency_is_never_left_waiting(
    conn: Conn, here: Conn, there: Conn
) -> None:
    for first in ("retry", "complete"):
        needed, dependant = claimed(conn), insert_job(conn, "uploaded")
        run(conn, "add_dependency", id=dependant, depends_on=needed.id)
        cancel(conn, dependant)
        steps = {
            "retry": lambda on: bool(run(on, "retry_jobs", ids=[dependant])),  # noqa: B023
            "complete": lambda on: complete(on, needed),  # noqa: B023
        }
        second = "complete" if first == "retry" else "retry"
        here.execute("BEGIN")
        assert steps[first](here)
        late = begin(lambda: steps[second](there))  # noqa: B023
        wait_until_blocked(conn, there, late)
        here.execute("COMMIT")
        assert late.result(WAIT_SECONDS)
        assert status_of(conn, dependant) == "queued"
        assert complete(conn, claim(conn))


def test_dependants_keep_waiting_unless_the_cancel_is_a_cascade(conn: Conn, dirs: Dirs) -> None:
    needed = claimed(conn).id
    dependant, behind, other = (insert_job(conn, "uploaded") for _ in range(3))
    run(conn, "add_dependency", id=dependant, depends_on=needed)
    run(conn, "add_dependency", id=behind, depends_on=dependant)
    assert cancelling(conn, dirs).cancel(needed).verdict is CancelVerdict.CANCELLED
    assert [status_of(conn, job) for job in (dependant, behind, other)] == ["uploaded"] * 3
    cascade = cancelling(conn, dirs, cascade=True)
    assert cascade.preview([needed]) == [needed, dependant, behind]
    again = cascade.cancel(needed)
    assert (again.verdict, again.cascade) == (CancelVerdict.CANCELLED_BEFORE, 2)
    assert [status_of(conn, job) for job in (dependant, behind, other)] == ["cancelled", "cancelled", "uploaded"]


# -- in bulk --


def test_a_cancel_in_bulk_reports_after_each_commit_and_can_be_interrupted(
    conn: Conn, there: Conn, dirs: Dirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convertq.queue.cancel.BATCH_JOBS", 2)
    jobs = [insert_job(conn, owner_session_id="o", mapping=mapping) for mapping in "mmmmn"]
    done = insert_job(conn, "complete", owner_session_id="o")
    assert find_active_jobs(database(conn), owner="o", mapping="m", status="queued") == jobs[:4]
    assert find_active_jobs(database(conn), owner="p") == []

    def interrupt(progress: BulkProgress) -> None:
        assert progress == BulkProgress(wanted=6, tried=2, done=2, skipped=0)
        assert [status_of(there, job) for job in jobs] == ["cancelled"] * 2 + ["queued"] * 3
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cancelling(conn, dirs).cancel_all([*jobs, done], interrupt)
    reports: list[BulkProgress] = []
    cancelling(conn, dirs).cancel_all([*jobs, done], reports.append)
    assert reports[-1] == BulkProgress(wanted=6, tried=6, done=3, skipped=3)
    assert {status_of(conn, job) for job in jobs} == {"cancelled"}


# -- no result stays --


@pytest.fixture
def seen() -> list[JobEvent]:
    return []


@pytest.fixture
def settlement(bounded: Conn, files: Files, seen: list[JobEvent]) -> Settlement:
    return Settlement(queue(bounded), files, Breaker(config(), Log(config())), JobEvents(seen.append))


def names(files: Files) -> list[str]:
    return sorted(path.name for path in files.results.iterdir())


def test_a_completion_after_the_cancel_leaves_no_file_and_is_logged_as_cancelled(
    conn: Conn, bounded: Conn, files: Files, settlement: Settlement, seen: list[JobEvent]
) -> None:
    job = claimed(bounded)
    outcome = files.converted(job)
    cancel(conn, job.id)
    settlement.settle(job, outcome)
    assert (names(files), status_of(conn, job)) == ([], "cancelled")
    assert [type(event) for event in seen] == [JobCancelled]


def test_a_result_that_was_published_by_a_commit_that_was_lost_is_removed(
    conn: Conn, bounded: Conn, files: Files, settlement: Settlement
) -> None:
    """The connection breaks between the link and the commit; the job is cancelled before the worker tries again."""
    job = claimed(bounded)
    outcome = files.converted(job)
    assert outcome.result
    outcome.result.publish()
    cancel(conn, job.id)
    assert f"{job.id}.xml" in names(files)
    settlement.settle(job, outcome)
    assert names(files) == []


def test_a_cancel_removes_what_a_dead_worker_has_published(conn: Conn, files: Files, dirs: Dirs) -> None:
    job = claimed(conn)
    outcome = files.converted(job)
    assert outcome.result
    outcome.result.publish()
    temporary = files.temporary_result(job.id, job.attempt, job.holder)
    temporary.write_bytes(b"<half")
    assert cancelling(conn, dirs).cancel(job.id).verdict is CancelVerdict.CANCELLED
    assert names(files) == []


def test_a_run_that_follows_the_cancel_keeps_its_result(
    conn: Conn, bounded: Conn, files: Files, settlement: Settlement, dirs: Dirs
) -> None:
    """The worker of the cancelled attempt comes back when the job was started over and completed by another."""
    job_id = queued_job(conn, dirs)
    late = claim(bounded)
    outcome = files.converted(late, b"<late/>")
    cancelling(conn, dirs).cancel(job_id)
    assert retry_job(database(conn), files, job_id)
    register_server(conn, "host:2:bbbb")
    other = claim(conn, "host:2:bbbb/1")
    Settlement(queue(conn), files, Breaker(config(), Log(config())), JobEvents()).settle(
        other, files.converted(other, b"<other/>")
    )
    settlement.settle(late, outcome)
    discard_results(database(conn), files, [job_id])  # by one that still takes it for cancelled
    assert files.result(job_id).read_bytes() == b"<other/>"
    assert (names(files), status_of(conn, job_id)) == ([f"{job_id}.xml"], "complete")


@pytest.mark.parametrize("first", ["cancel", "complete"])
def test_publication_and_cancel_at_once_have_one_winner(
    conn: Conn, bounded: Conn, there: Conn, files: Files, settlement: Settlement, dirs: Dirs, first: str
) -> None:
    """The file is linked while the row is locked: a cancel waits for it, or comes before it."""
    job = claimed(bounded)
    outcome = files.converted(job)
    if first == "cancel":
        there.execute("BEGIN")
        assert cancel(there, job.id) == [job.id]
        late = begin(lambda: settlement.settle(job, outcome))
        wait_until_blocked(conn, bounded)
        there.execute("COMMIT")
        late.result(WAIT_SECONDS)
        assert (names(files), status_of(conn, job)) == ([], "cancelled")
        return
    published, may_commit = threading.Event(), threading.Event()

    def wait_before_the_commit() -> None:
        published.set()
        may_commit.wait(WAIT_SECONDS)

    files.sync_results = wait_before_the_commit  # type: ignore[method-assign]
    completing = begin(lambda: settlement.settle(job, outcome))
    assert published.wait(WAIT_SECONDS)
    late_cancel = begin(lambda: cancelling(there, dirs).cancel(job.id))
    wait_until_blocked(conn, there)
    may_commit.set()
    completing.result(WAIT_SECONDS)
    assert late_cancel.result(WAIT_SECONDS).verdict is CancelVerdict.ENDED
    assert (names(files), status_of(conn, job)) == ([f"{job.id}.xml"], "complete")


# -- two at once --

Step = Callable[[Conn, ClaimedJob], object]
MEETINGS: dict[str, Step] = {
    "complete": lambda on, job: complete(on, job),
    "retry": lambda on, job: retry_later(on, job),
    "fail": lambda on, job: fail(on, job),
    "requeue": lambda on, job: queue(on).requeue_job(job, "shutdown"),
    "requeue of a dead worker": lambda on, job: queue(on).requeue_worker_jobs(HOLDER, counted=True, reason="x"),
    "extend": lambda on, job: queue(on).extend_lease(job),
    "cancel": lambda on, job: cancel(on, job.id),
}


@pytest.mark.parametrize("meets", MEETINGS)
def test_a_write_that_waits_for_a_cancel_changes_nothing(conn: Conn, here: Conn, there: Conn, meets: str) -> None:
    job = claimed(here)
    there.execute("BEGIN")
    assert cancel(there, job.id) == [job.id]
    late = begin(lambda: MEETINGS[meets](here, job))
    wait_until_blocked(conn, here)
    there.execute("COMMIT")
    assert not late.result(WAIT_SECONDS)
    assert status_of(conn, job) == "cancelled"
    assert events_of(conn, job)[-1] == "cancelled"


@pytest.mark.parametrize("meets", [name for name in MEETINGS if name != "cancel"])
def test_a_cancel_that_waits_for_a_write_ends_what_is_left_to_end(
    conn: Conn, here: Conn, there: Conn, meets: str
) -> None:
    job = claimed(here)
    here.execute("BEGIN")
    assert MEETINGS[meets](here, job)
    late = begin(lambda: cancel(there, job.id))
    wait_until_blocked(conn, there)
    here.execute("COMMIT")
    has_ended = meets in ("complete", "fail")
    assert late.result(WAIT_SECONDS) == ([] if has_ended else [job.id])
    row = row_of(conn, job)
    assert row["status"] == {"complete": "complete", "fail": "failed"}.get(meets, "cancelled")
    if not has_ended:
        assert last_event(conn, job)["meta"].get("from") == (None if meets == "extend" else "queued")
    assert_counters_are_exact(conn)


def test_cancel_and_claim_at_once_have_one_winner(conn: Conn, here: Conn, there: Conn) -> None:
    register_server(conn)
    for _ in range(ROUNDS):
        job_id = insert_job(conn)
        taken, cancelled = together(lambda: cursor(here).claim_job(SERVER, HOLDER).job, lambda: cancel(there, job_id))  # noqa: B023
        assert cancelled == [job_id]
        row = row_of(conn, job_id)
        assert (row["status"], row["attempt_count"]) == ("cancelled", 0)
        if isinstance(taken, ClaimedJob):
            assert not complete(conn, taken)


def test_a_claim_skips_a_job_that_is_being_cancelled(here: Conn, there: Conn) -> None:
    first, second = insert_job(here, priority=1), insert_job(here)
    there.execute("BEGIN")
    assert cancel(there, first) == [first]
    assert begin(lambda: claim(here)).result(WAIT_SECONDS).id == second
    there.execute("COMMIT")


def test_reclaim_and_cancel_at_once_end_as_cancelled(conn: Conn, here: Conn, there: Conn) -> None:
    for _ in range(ROUNDS):
        job = claimed(conn)
        expire_lease(conn, job)
        reclaimed, cancelled = together(lambda: len(queue(here).reclaim_jobs()), lambda: len(cancel(there, job.id)))  # noqa: B023
        assert (reclaimed in (0, 1), cancelled, status_of(conn, job)) == (True, 1, "cancelled")
    assert_counters_are_exact(conn)


def test_cancels_and_retries_of_many_jobs_at_once_do_not_deadlock(conn: Conn, here: Conn, there: Conn) -> None:
    jobs = [insert_job(conn) for _ in range(30)]
    for _ in range(ROUNDS):
        done = together(
            lambda: cancel(here, *jobs),
            lambda: cancel(there, *reversed(jobs)),
            lambda: run(conn, "retry_jobs", ids=jobs[::2]),
        )
        assert not [result for result in done if isinstance(result, Exception)]
    assert_counters_are_exact(conn)


def test_cleanup_and_retry_of_a_cancelled_job_have_one_winner(conn: Conn, here: Conn, there: Conn) -> None:
    """Cleanup locks the job before it removes the source: a retry waits for it, and then finds the file gone."""
    job = insert_job(conn, "cancelled", created_at="yesterday", cancelled_at="yesterday", upload_path="/uploads/x.pdf")
    here.execute("BEGIN")
    locked = run(here, "lock_expired_sources", days=0, after_at="-infinity", after_id=UUID(int=0), limit=10)
    assert [row["id"] for row in locked] == [job]
    late = begin(lambda: run(there, "retry_jobs", ids=[job]))
    wait_until_blocked(conn, there)
    here.execute("COMMIT")
    assert [row["id"] for row in late.result(WAIT_SECONDS)] == [job]
    there.execute("BEGIN")
    assert cancel(there, job) == [job]
    unlocked = run(here, "lock_expired_sources", days=0, after_at="-infinity", after_id=UUID(int=0), limit=10)
    assert unlocked == []
    there.execute("COMMIT")
