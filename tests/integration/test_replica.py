"""A primary and its standby: the web reads from the standby, commands find the primary, and doctor tells them apart."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from convertq.queue.cancel import CancelledJob, Cancelling, CancelVerdict
from convertq.queue.config import read_config
from convertq.queue.database.database import Database
from convertq.queue.manual_retry import retry_job
from convertq.queue.store import open_store
from convertq.queue.submission import Submission, SubmissionOptions, SubmissionResult, Submitter

from tests.conftest import Environment, Web
from tests.postgres_pair import Pair
from tests.processes import run
from tests.stalled_commits import wait_until_commits_stall
from tests.waiting import eventually
from tests.web_client import PDF, Site, Visitor, error_of

ALL_JOBS = "/api/admin/jobs"
ROUTES = (
    "/", "/api/jobs", "/api/status", "/api/admin/stats", "/api/admin/servers", "/api/admin/history",
    "/api/admin/dashboard", "/api/admin/breaker", "/api/admin/queue-events", ALL_JOBS, "/metrics",
)  # fmt: skip
WRITTEN = "convertq_written"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair(synchronous=False) as pair:
        yield pair


@pytest.fixture
def pair_environment(environment: Environment, pair: Pair) -> dict[str, str]:
    """The standby is named first."""
    assert pair.standby is not None
    return environment(
        DATABASE_URL=pair.url(*reversed(pair.ports)), DATABASE_READ_URL=pair.standby.url(), WEB_PROCESSES=1
    )


@pytest.fixture
def database(pair_environment: dict[str, str]) -> Iterator[Database]:
    opened = Database.open(read_config(pair_environment).database, "convertq:tests", reopens=True)
    yield opened
    opened.close()


def on_standby(pair: Pair, statement: LiteralString) -> None:
    assert pair.standby is not None
    with psycopg.connect(pair.standby.url(), autocommit=True) as conn:
        conn.execute(statement)


def listed_jobs(visitor: Visitor, route: str = "/api/jobs") -> list[str]:
    answer = visitor.get(route)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


def is_read(site: Site) -> bool:
    """By the last change: on a busy machine it may be away for a moment, and back."""
    ups, downs = ([event["timestamp"] for event in site.process.events(f"replica_{way}")] for way in ("up", "down"))
    return max(ups, default="") > max(downs, default="")


def test_reads_go_to_the_replica_and_those_of_a_visitor_who_has_written_to_the_primary(
    web: Web, pair: Pair, pair_environment: dict[str, str]
) -> None:
    site = web(**pair_environment)
    visitor, operator = site.visitor(), site.operator()
    eventually(lambda: is_read(site), what="the replica is read")
    assert [operator.get(route).status_code for route in ROUTES] == [200] * len(ROUTES)
    assert WRITTEN not in visitor.cookies
    later = site.visitor(Cookie=f"owner_session_id={visitor.owner}")  # without the position of a write
    jobs: list[str] = []  # newest first

    def is_hidden() -> bool:
        """Whether those who have written nothing do not see a new job, because the replica does not have it. A busy
        machine may take so long that the replica counts as too far behind, or as away: then another job is tried."""
        on_standby(pair, "SELECT pg_wal_replay_resume()")
        eventually(lambda: is_read(site) and listed_jobs(operator, ALL_JOBS) == jobs, what="the replica is read")
        on_standby(pair, "SELECT pg_wal_replay_pause()")
        jobs.insert(0, str(visitor.submitted(PDF + b"%% %d" % len(jobs))))
        return listed_jobs(operator, ALL_JOBS) == listed_jobs(later) == jobs[1:]

    eventually(is_hidden, what="a job that the replica does not have")
    assert listed_jobs(visitor) == jobs
    assert visitor.get(f"/api/jobs/{jobs[0]}").status_code == 200
    assert error_of(later.get(f"/api/jobs/{jobs[0]}/download")) == (409, "NOT_READY")  # downloads ask the primary
    assert str(later.submitted(PDF + b"%% %d" % (len(jobs) - 1))) == jobs[0]  # and so does dedupe
    eventually(lambda: listed_jobs(operator, ALL_JOBS) == jobs, what="it is more than 5 s behind")
    eventually(lambda: not is_read(site), what="and the log says so")
    on_standby(pair, "SELECT pg_wal_replay_resume()")
    eventually(lambda: is_read(site), what="it is read again")
    assert listed_jobs(later) == jobs
    assert_read_while_the_replica_is_away(site, pair, operator, jobs)


def assert_read_while_the_replica_is_away(site: Site, pair: Pair, operator: Visitor, jobs: list[str]) -> None:
    assert pair.standby is not None
    pair.standby.stop("immediate")
    assert listed_jobs(operator, ALL_JOBS) == jobs  # the request is repeated on the primary
    eventually(lambda: not is_read(site), what="it is not asked any more")
    pair.standby.start()
    eventually(lambda: is_read(site), what="it is read again")
    assert site.process.events("web_error") == site.process.events("db_down") == []


def test_doctor_says_who_is_primary_and_how_far_the_replica_is(pair: Pair, pair_environment: dict[str, str]) -> None:
    answer = run("doctor", environment=pair_environment).stdout
    assert f"127.0.0.1:{pair.ports[0]} is the primary, with walreceiver (async, streaming" in answer
    assert "commits are asynchronous" in answer
    assert re.search(rf"127\.0\.0\.1:{pair.ports[1]}/postgres is \d\.\d\d s behind the primary at most", answer)
    wrong = {**pair_environment, "DATABASE_READ_URL": pair.primary.url(), "DATABASE_DIRECT_URL": pair.primary.url()}
    answer = run("doctor", environment=wrong).stdout
    assert "is not a standby: the web does not read from it" in answer
    assert "is PostgreSQL itself" in answer


def test_a_command_that_meets_a_standby_alone_says_so(
    pair: Pair, pair_environment: dict[str, str], tmp_path: Path
) -> None:
    assert pair.standby is not None
    (tmp_path / "a.pdf").write_bytes(PDF)
    alone = {**pair_environment, "DATABASE_URL": pair.standby.url()}
    answer = run("submit", str(tmp_path / "a.pdf"), environment=alone)
    assert (answer.returncode, "read-only: name the primary in DATABASE_URL" in answer.stderr) == (69, True)


def lose_answer_of_commit(pair: Pair, change: Callable[[], object]) -> None:
    """Commits wait for a standby that does not exist. The session is ended then: its commit is done, and unanswered."""
    with pair.connect() as conn:
        conn.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        conn.execute("SELECT pg_reload_conf()")
        wait_until_commits_stall(pair.primary.url())
        thread = threading.Thread(target=change)
        thread.start()
        waiting = """SELECT pid FROM pg_stat_activity WHERE application_name = 'convertq:tests'
                        AND wait_event = 'SyncRep'"""
        row = eventually(lambda: conn.execute(waiting).fetchone(), what="a commit that waits")
        assert row
        conn.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        conn.execute("SELECT pg_terminate_backend(%s, 5000)", [row["pid"]])
        conn.execute("SELECT pg_reload_conf()")
        thread.join()


def test_a_change_whose_commit_is_not_answered_is_looked_up(
    pair: Pair, pair_environment: dict[str, str], database: Database
) -> None:
    config, done = read_config(pair_environment), list[Submission]()
    store = open_store(config)
    options = SubmissionOptions("lost", "pt_simon_invoice_v1")

    def submit() -> None:
        done.append(Submitter(database, store, config).submit(BytesIO(PDF + b"%1"), "a.pdf", options))

    lose_answer_of_commit(pair, submit)
    [submission] = done
    assert submission.how is SubmissionResult.CREATED
    job_id = submission.id
    assert job_id is not None
    assert store.has_source(job_id)
    verdicts = list[CancelledJob]()
    lose_answer_of_commit(pair, lambda: verdicts.append(Cancelling(database, store).cancel(job_id)))
    assert [each.verdict for each in verdicts] == [CancelVerdict.CANCELLED]
    retried = list[bool]()
    lose_answer_of_commit(pair, lambda: retried.append(retry_job(database, store, job_id)))
    assert retried == [True]
    with pair.connect() as conn:
        events = conn.execute("SELECT event_type FROM job_events WHERE job_id = %s ORDER BY id", [job_id]).fetchall()
    assert [event["event_type"] for event in events] == ["created", "queued", "cancelled", "retry"]


def test_a_change_whose_session_ends_before_its_commit_is_made_again(
    pair: Pair, pair_environment: dict[str, str], database: Database
) -> None:
    config, done = read_config(pair_environment), list[SubmissionResult]()
    store = open_store(config)
    options = SubmissionOptions("again", "pt_simon_invoice_v1")

    def submit() -> None:
        done.append(Submitter(database, store, config).submit(BytesIO(PDF + b"%2"), "b.pdf", options).how)

    with pair.connect() as conn:
        thread = threading.Thread(target=submit)
        with conn.transaction():
            conn.execute("LOCK TABLE jobs IN EXCLUSIVE MODE")
            thread.start()
            waiting = """SELECT pid FROM pg_stat_activity
                          WHERE application_name = 'convertq:tests' AND wait_event_type = 'Lock'"""
            with pair.connect() as other:
                row = eventually(lambda: other.execute(waiting).fetchone(), what="a submission that waits")
                assert row
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [row["pid"]])
        thread.join()
        assert done == [SubmissionResult.CREATED]
        assert conn.execute("SELECT FROM jobs WHERE owner_session_id = 'again'").rowcount == 1
