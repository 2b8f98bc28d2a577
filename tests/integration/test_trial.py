"""A trial's end: only a good call closes the breaker, and only what was committed is logged."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest
from convertq.queue.breaker import Breaker
from convertq.queue.database.database import Database
from convertq.queue.database.pipeline import Statement
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_events import JobEvents
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Completed, Failed, Outcome, RetryLater
from convertq.queue.settle import Settlement

from tests import gateway_behaviours as answers
from tests.conftest import Dirs, Supervisor
from tests.files import Files
from tests.jobs import (
    HOLDER,
    Conn,
    breaker,
    claim,
    claimed,
    config,
    insert_job,
    open_database,
    queued_job,
    run,
    set_breaker,
    status_of,
)
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

#: ends the session that commits a change of the breaker: before the commit, so that nothing of it is kept
LOSE_THE_COMMIT = """
    CREATE FUNCTION lose_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(10);
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER lose_commit AFTER UPDATE ON circuit_breaker DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION lose_commit()
"""
KEEP_COMMITS = "DROP TRIGGER lose_commit ON circuit_breaker"
REFUSED = Failed(Failure(Code.GW_4XX, "x", called=True), dead_letter=False)
BAD = RetryLater(Failure(Code.GW_5XX, "x", called=True), delay_ms=0)


class KeptLog(Log):
    """The breaker's lines since the last call of `logged`."""

    def __init__(self) -> None:
        super().__init__(config())
        self._events: list[str] = []

    def __call__(self, event: str, **fields: Any) -> None:
        self._events += [event] if event.startswith("breaker") else []

    def logged(self) -> list[str]:
        events, self._events = self._events, []
        return events


class Worker:
    """Settles the jobs of one worker, each time over a new connection."""

    def __init__(self, url: str, files: Files) -> None:
        self._url, self._files = url, files
        self._log = KeptLog()
        self.logged = self._log.logged
        self._breaker = Breaker(config(CIRCUIT_WINDOW=1, CIRCUIT_FAIL_THRESHOLD=1), self._log)

    def settle(self, job: ClaimedJob, outcome: Outcome) -> None:
        with open_database(self._url) as database:
            Settlement(JobQueue(database, config()), self._files, self._breaker, JobEvents()).settle(job, outcome)

    def converted(self, job: ClaimedJob) -> Completed:
        return self._files.converted(job)


@pytest.fixture
def worker(database_url: str, files: Files) -> Worker:
    return Worker(database_url, files)


def trial(conn: Conn) -> ClaimedJob:
    insert_job(conn, priority=1000)
    set_breaker(conn, "half_open", probe_by=HOLDER, opened_at="2020-01-01", cooldown="60 s")
    job = claim(conn)
    assert job.is_trial
    return job


def test_a_trial_that_goes_well_is_said_once(conn: Conn, worker: Worker) -> None:
    job = trial(conn)
    worker.settle(job, worker.converted(job))
    assert (breaker(conn)["state"], worker.logged()) == ("closed", ["breaker_closed"])
    other = claimed(conn)
    worker.settle(other, worker.converted(other))
    assert worker.logged() == []


@pytest.mark.parametrize("ending", ["converted", "refused"])
def test_a_trial_whose_commit_was_lost_and_whose_job_was_taken_closes_nothing_and_says_so(
    conn: Conn, worker: Worker, ending: str
) -> None:
    job = trial(conn)
    outcome: Outcome = worker.converted(job) if ending == "converted" else REFUSED
    conn.execute(LOSE_THE_COMMIT)
    with pytest.raises(psycopg.OperationalError):
        worker.settle(job, outcome)
    conn.execute(KEEP_COMMITS)
    conn.execute("UPDATE jobs SET status = 'queued', leased_by = NULL, lease_expires_at = NULL")  # opens it again
    worker.settle(job, outcome)
    assert (breaker(conn)["state"], worker.logged()) == ("open", [])


def test_a_lost_closing_is_not_said_with_the_next_job_either(conn: Conn, worker: Worker) -> None:
    job = trial(conn)
    conn.execute(LOSE_THE_COMMIT)
    with pytest.raises(psycopg.OperationalError):
        worker.settle(job, worker.converted(job))
    conn.execute(KEEP_COMMITS)
    set_breaker(conn, "closed")
    other = claimed(conn)
    worker.settle(other, worker.converted(other))
    assert worker.logged() == []


def test_a_trial_that_is_settled_at_the_second_try_is_said_once(conn: Conn, worker: Worker) -> None:
    job = trial(conn)
    outcome = worker.converted(job)
    conn.execute(LOSE_THE_COMMIT)
    with pytest.raises(psycopg.OperationalError):
        worker.settle(job, outcome)
    conn.execute(KEEP_COMMITS)
    worker.settle(job, outcome)
    assert (breaker(conn)["state"], worker.logged()) == ("closed", ["breaker_closed"])


class AnswerIsLost(psycopg.OperationalError):
    pass


@pytest.mark.parametrize("ending", ["converted", "refused", "bad"])
def test_a_change_that_was_committed_without_an_answer_is_said_once(
    conn: Conn, worker: Worker, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit arrived, its answer did not: the connection ends between the two."""
    plain, pipelined = Database.transaction, Database.pipelined_transaction
    job = claimed(conn) if ending == "bad" else trial(conn)
    outcome: Outcome = REFUSED if ending == "refused" else BAD if ending == "bad" else worker.converted(job)

    @contextlib.contextmanager
    def without_an_answer(self: Database) -> Any:
        with plain(self):
            yield
        self.connection.close()
        raise AnswerIsLost

    @contextlib.contextmanager
    def pipelined_without_an_answer(self: Database, *statements: Statement, **options: Any) -> Any:
        with pipelined(self, *statements, **options) as rows:
            yield rows
        self.connection.close()
        raise AnswerIsLost

    monkeypatch.setattr(Database, "transaction", without_an_answer)
    monkeypatch.setattr(Database, "pipelined_transaction", pipelined_without_an_answer)
    with pytest.raises(AnswerIsLost):
        worker.settle(job, outcome)
    monkeypatch.undo()
    worker.settle(job, outcome)
    assert worker.logged() == ["breaker_open" if ending == "bad" else "breaker_closed"]


# -- a trial that makes no call --


def test_a_trial_that_needs_no_call_leaves_the_breaker_half_open_for_another(
    conn: Conn, worker: Worker, files: Files
) -> None:
    job = trial(conn)
    files.result(job.id).write_bytes(b"<left/>")
    worker.settle(job, files.left(job))
    row = breaker(conn)
    assert status_of(conn, job) == "complete"
    assert (row["state"], row["trial_job"], row["probe_by"]) == ("half_open", None, HOLDER)
    assert conn.execute("SELECT FROM circuit_breaker WHERE probe_after > now() + interval '50 s'").fetchall()
    assert worker.logged() == []
    next_id = insert_job(conn)
    second = claim(conn)
    assert (second.id, second.is_trial) == (next_id, True)
    worker.settle(second, worker.converted(second))
    assert (breaker(conn)["state"], worker.logged()) == ("closed", ["breaker_closed"])


def test_without_another_job_to_try_it_opens_again(conn: Conn, worker: Worker, files: Files) -> None:
    job = trial(conn)
    files.result(job.id).write_bytes(b"<left/>")
    worker.settle(job, files.left(job))
    conn.execute("UPDATE circuit_breaker SET probe_after = 'yesterday'")
    assert run(conn, "take_probe", gateway="default", holder="x/1", probe_timeout=10, cooldown_ms=0) == [
        {"is_mine": False}
    ]
    assert breaker(conn)["state"] == "open"


def test_a_queue_behind_leftovers_is_opened_by_the_first_call(
    supervisor: Supervisor, conn: Conn, dirs: Dirs, gateway: StandInGateway
) -> None:
    """Three jobs need no call; the fourth is the trial that decides."""
    gateway.default = answers.status(503)
    jobs = [queued_job(conn, dirs) for _ in range(4)]
    for job_id in jobs[:3]:
        (dirs.results / f"{job_id}.xml").write_bytes(b"<left/>")
    set_breaker(conn, "open", probe_after="yesterday", cooldown="1 ms")
    process = supervisor(WORKER_CONCURRENCY=2, CIRCUIT_COOLDOWN_MS=1, RETRY_MAX_ATTEMPTS=1)
    for job_id in jobs[:3]:
        eventually(lambda job_id=job_id: status_of(conn, job_id) == "complete", what="a leftover")  # type: ignore[misc]
    eventually(lambda: status_of(conn, jobs[3]) == "failed", what="the trial")
    assert (process.events("breaker_closed"), breaker(conn)["state"] != "closed") == ([], True)
    gateway.default = answers.ok()
    queued_job(conn, dirs)
    process.wait_for_event("breaker_closed")
    assert process.stop() == 0
