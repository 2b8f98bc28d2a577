"""A migration while the queue works: it holds nobody up, and code that it supports works on, before and after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from convertq import sql

from tests.conftest import Connect, Convertq, Environment, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held
from tests.jobs import Conn, insert_job, register_server, try_claim
from tests.lifecycle.conftest import wait_for_call
from tests.newer_release import NewerRelease
from tests.processes import Process, run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

KNOWN = sql.migrations()[-1].version
ADDITIVE = f"""-- A column that older code does not know.
-- supports code from: {KNOWN}
ALTER TABLE {{schema}}.jobs ADD COLUMN noted text;
"""
STORY = "created queued processing complete"


@pytest.fixture
def release(tmp_path: Path) -> NewerRelease:
    return NewerRelease(tmp_path / "newer")


@pytest.fixture
def newer(release: NewerRelease, environment: Environment) -> Iterator[Callable[..., Process]]:
    """`newer("migrate")`: a command of the later release."""
    started: list[Process] = []

    def newer(*arguments: str) -> Process:
        started.append(release.start(*arguments, environment=environment()))
        return started[-1]

    yield newer
    assert [name for process in started for name in process.end()] == []


@pytest.fixture
def claims(conn: Conn, connect: Connect) -> Iterator[Callable[[], int]]:
    """How many jobs a worker has claimed so far, one after another on a connection of its own, until the test ends."""
    register_server(conn)
    claimed, over = [0], threading.Event()

    def claim() -> None:
        mine = connect()
        while not over.is_set():
            insert_job(mine)
            claimed[0] += try_claim(mine).job is not None

    thread = threading.Thread(target=claim)
    thread.start()
    yield lambda: claimed[0]
    over.set()
    thread.join(20)


def test_a_migration_behind_a_long_reader_holds_no_claim_up_and_says_whom_it_waits_for(
    release: NewerRelease, newer: Callable[..., Process], claims: Callable[[], int], connect: Connect
) -> None:
    release.add("noted", ADDITIVE)
    reader = connect()
    with reader.transaction():
        reader.execute("SET LOCAL application_name = 'pg_dump'")
        reader.execute("SELECT FROM jobs LIMIT 1")
        migration = newer("migrate")
        eventually(lambda: "waiting for" in migration.tail(), what="the line about whom it waits for")
        for _ in range(5):
            wanted = claims() + 10
            eventually(lambda wanted=wanted: claims() >= wanted, what="ten claims")  # type: ignore[misc]
        assert f"waiting for session {reader.info.backend_pid} (pg_dump, in a transaction since " in migration.tail()
        assert migration.tail().count("waiting for") == 1
    assert migration.wait() == 0
    assert f"applied {release.version:04} noted" in migration.tail()


def test_older_workers_work_on_under_a_newer_schema_that_supports_them(
    supervisor: Supervisor,
    release: NewerRelease,
    newer: Callable[..., Process],
    documents: Documents,
    gateway: StandInGateway,
    environment: Environment,
) -> None:
    """Applied while they convert; then every session is ended, so that each has to connect to the newer schema."""
    release.add("noted", ADDITIVE)
    process = supervisor(WORKER_CONCURRENCY=3)
    answered = threading.Event()
    job_id = documents.upload()
    gateway.script_for(job_id, held(answered))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    jobs = documents.put_many(150)
    gateway.wait_for(20)
    assert newer("migrate").wait() == 0
    assert documents.conn.execute("SELECT noted FROM jobs").rowcount == 151
    documents.wait_for_all(jobs[:60], "complete")
    documents.conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'convertq:%%' AND datname = current_database()"
    )
    answered.set()
    documents.wait_for_all([job_id, *jobs], "complete")
    assert documents.story(job_id) == STORY
    assert len(gateway.requests_of(job_id)) == 1
    assert documents.wait_for(documents.put(b"%PDF-1.7 afterwards"))["status"] == "complete"
    told = [event["error_message"] for event in process.events("db_down")]
    assert [line for line in told if "upgrade" in line or "cached plan" in line] == []
    assert process.events("worker_died") == []
    assert run("list", environment=environment()).returncode == 0
    assert run("migrate", environment=environment()).returncode == 0


def test_older_workers_wait_under_a_newer_schema_that_does_not_support_them(
    convertq: Convertq, release: NewerRelease, newer: Callable[..., Process], environment: Environment
) -> None:
    version = release.add("noted", "-- A column.\nALTER TABLE {schema}.jobs ADD COLUMN noted text;\n")
    assert newer("migrate").wait() == 0
    process = convertq("worker", "run")
    told = process.wait_for_event("db_down")["error_message"]
    assert told == f"the schema public is at version {version}, and this convertq knows {KNOWN}: upgrade convertq"
    done = run("migrate", environment=environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert "upgrade convertq" in done.stderr


def test_newer_workers_wait_for_the_newer_schema_and_then_work(
    supervisor: Supervisor, release: NewerRelease, newer: Callable[..., Process], documents: Documents
) -> None:
    """Beside older ones, which work on before and after."""
    release.add("noted", ADDITIVE)
    older = supervisor(WORKER_CONCURRENCY=1)
    process = newer("worker", "run")
    told = process.wait_for_event("db_down")["error_message"]
    wanted = f"is at version {KNOWN}, and {release.version} is needed: run `convertq migrate`"
    assert told.endswith(wanted)
    documents.wait_for_all(documents.put_many(20), "complete")
    assert newer("migrate").wait() == 0
    process.wait_for_event("ready")
    older.stop()
    jobs = [documents.put(b"%%PDF-1.7 %d" % number) for number in range(20)]
    documents.wait_for_all(jobs, "complete")
    assert len(process.events("db_down")) == 1
