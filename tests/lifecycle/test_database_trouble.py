"""A database that is down, restarted, full, read-only or out of reach: nobody exits, nothing is lost or done twice."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from convertq.embedded.postgres import EmbeddedPostgres, StopMode
from psycopg.rows import dict_row

from tests.conftest import Convertq, Dirs, Supervisor, migrate
from tests.documents import Documents
from tests.gateway_behaviours import delayed, held
from tests.lifecycle.conftest import OwnDocuments, pid_of_holder, wait_for_call
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.standby import DemotedPostgres
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually

STORY = "created queued processing complete"
SESSIONS = "SELECT pid, application_name FROM pg_stat_activity WHERE application_name LIKE 'convertq:%'"


def assert_works(documents: Documents) -> None:
    assert documents.wait_for(documents.put())["status"] == "complete"


def trouble_per_worker(process: Process) -> Counter[tuple[str, str]]:
    """How often each process said that it lost the database."""
    return Counter((event["server"], event["worker"]) for event in process.events("db_down"))


def test_a_database_that_is_down_at_the_start_is_waited_for(
    convertq: Convertq, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    own_postgres.stop()
    process = convertq("worker", "run", DATABASE_URL=own_postgres.url())
    process.wait_for_event("db_down")
    own_postgres.start()
    process.wait_for_event("ready")
    process.wait_for_event("db_up")
    assert len(process.events("db_down")) == 1
    assert_works(own_documents())


def test_a_database_without_the_tables_is_waited_for_and_the_remedy_said(
    convertq: Convertq, own_postgres: EmbeddedPostgres, dirs: Dirs
) -> None:
    with psycopg.connect(own_postgres.url(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE fresh")
    process = convertq("worker", "run", DATABASE_URL=own_postgres.url("fresh"))
    said = process.wait_for_event("db_down")
    assert "convertq migrate" in said["error_message"]
    migrate(own_postgres.url("fresh"))
    process.wait_for_event("ready")
    assert len(process.events("db_down")) == 1
    with psycopg.connect(own_postgres.url("fresh"), autocommit=True, row_factory=dict_row) as conn:
        assert_works(Documents(conn, dirs.uploads, dirs.results))


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_result_converted_while_the_database_is_down_is_completed_when_it_is_back(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
    mode: StopMode,
) -> None:
    answered = threading.Event()
    process = supervisor(DATABASE_URL=own_postgres.url())
    documents = own_documents()
    job_id = documents.upload()
    gateway.script_for(job_id, held(answered))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    own_postgres.stop(mode)
    answered.set()
    process.wait_for_event("gateway_ok", job_id=str(job_id))
    process.wait_for_event("db_down", count=3)
    own_postgres.start()
    documents = own_documents()
    row = documents.wait_for(job_id)
    assert (row["status"], row["attempt_count"]) == ("complete", 1)
    assert documents.story(job_id) == STORY
    assert len(gateway.requests_of(job_id)) == 1
    assert set(trouble_per_worker(process).values()) == {1}
    assert process.events("worker_died") == []
    assert_works(documents)


def test_a_restart_in_the_middle_of_a_call_is_not_noticed_by_the_job(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
) -> None:
    process = supervisor(DATABASE_URL=own_postgres.url(), WORKER_LEASE_TTL_SEC=60, WORKER_LEASE_EXTEND_SEC=1)
    documents = own_documents()
    job_id = documents.upload()
    gateway.script_for(job_id, delayed(2.5))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    own_postgres.restart("immediate")
    documents = own_documents()
    assert documents.wait_for(job_id)["status"] == "complete"
    assert documents.story(job_id) == STORY
    assert len(gateway.requests_of(job_id)) == 1
    assert process.events("lease_lost") == []


def test_a_connection_lost_during_a_call_is_not_noticed_by_the_jobs_that_follow(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """What the lost connection had claimed is requeued first: a job claimed before that would be requeued with it."""
    release = threading.Event()
    gateway.script(held(release))
    supervisor(WORKER_CONCURRENCY=1)
    jobs = documents.put_many(4)
    gateway.wait_for(1)
    terminate_all(documents)
    release.set()
    documents.wait_for_all(jobs, "complete")
    assert {documents.story(job_id) for job_id in jobs} == {STORY}


def test_every_session_may_be_terminated_one_by_one(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    process = supervisor()
    answered = threading.Event()
    job_id = documents.upload()
    gateway.script_for(job_id, held(answered))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    own = " AND datname = current_database()"
    sessions = documents.conn.execute(SESSIONS + own).fetchall()
    assert len(sessions) == 3
    for session in sessions:
        documents.conn.execute("SELECT pg_terminate_backend(%s, 5000)", [session["pid"]])
    answered.set()
    assert documents.wait_for(job_id)["status"] == "complete"
    assert documents.story(job_id) == STORY
    assert_works(documents)
    eventually(lambda: documents.conn.execute(SESSIONS + own).rowcount == 3, what="three sessions again")
    assert process.events("worker_died") == []


def test_a_worker_that_dies_while_the_database_is_down_has_its_job_requeued_afterwards(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
) -> None:
    process = supervisor(DATABASE_URL=own_postgres.url(), WORKER_CONCURRENCY=1)
    documents = own_documents()
    job_id = documents.upload()
    gateway.script_for(job_id, held(threading.Event()))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    pid = pid_of_holder(process, documents, job_id)
    own_postgres.stop()
    os.kill(pid, signal.SIGKILL)
    process.wait_for_event("worker_died")
    own_postgres.start()
    documents = own_documents()
    row = documents.wait_for(job_id)
    assert (row["status"], row["attempt_count"]) == ("complete", 2)
    assert documents.story(job_id) == "created queued processing requeued processing complete"
    documents.wait_until_tidy()


def test_a_reached_connection_limit_is_waited_out(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    documents = own_documents()
    make_role(documents, "app")
    process = supervisor(DATABASE_URL=own_postgres.url().replace("postgres@", "app@"))
    documents.conn.execute("ALTER ROLE app CONNECTION LIMIT 1")
    terminate_all(documents)
    process.wait_for_event("db_down", count=2)
    job_id = documents.put()
    documents.conn.execute("ALTER ROLE app CONNECTION LIMIT -1")
    assert documents.wait_for(job_id)["status"] == "complete"
    eventually(lambda: documents.conn.execute(SESSIONS).rowcount == 3, what="three sessions again")
    assert_works(documents)


def test_a_database_that_is_read_only_until_it_is_promoted_is_waited_for_quietly(
    supervisor: Supervisor, dirs: Dirs
) -> None:
    with DemotedPostgres(port=0) as postgres:
        migrate(postgres.url())
        process = supervisor(DATABASE_URL=postgres.url())
        postgres.demote()
        with psycopg.connect(postgres.url(), autocommit=True, row_factory=dict_row) as conn:
            documents = Documents(conn, dirs.uploads, dirs.results)
            process.wait_for_event("db_down", count=3)
            since = documents.now()
            eventually(lambda: (documents.now() - since).total_seconds() > 3, what="three seconds of it")
            conn.execute("SELECT pg_promote()")
            assert_works(documents)
        assert set(trouble_per_worker(process).values()) == {1}
        assert process.events("worker_died") == []
        assert process.stop() == 0


def test_a_right_that_is_taken_away_for_a_while_is_waited_for_quietly(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    documents = own_documents()
    make_role(documents, "app")
    process = supervisor(DATABASE_URL=own_postgres.url().replace("postgres@", "app@"))
    documents.conn.execute("REVOKE UPDATE ON jobs FROM app")
    process.wait_for_event("db_down", count=2)
    since = documents.now()
    eventually(lambda: (documents.now() - since).total_seconds() > 3, what="three seconds of it")
    documents.conn.execute("GRANT UPDATE ON jobs TO app")
    assert_works(documents)
    assert set(trouble_per_worker(process).values()) == {1}


@pytest.fixture
def proxy(own_postgres: EmbeddedPostgres) -> TcpProxy:
    return TcpProxy(own_postgres.port)


def test_a_cut_network_loses_nothing(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
    proxy: TcpProxy,
) -> None:
    gateway.default = delayed(0.05)
    documents = own_documents()
    with proxy:
        process = supervisor(DATABASE_URL=f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")
        jobs = documents.put_many(60)
        for answered in (10, 20, 30, 40):
            gateway.wait_for(answered)
            proxy.cut()
        proxy.refuse()
        process.wait_for_event("db_down", worker="")
        proxy.listen()
        documents.wait_for_all(jobs, "complete")
        assert process.stop() == 0
    query = "SELECT count(*) AS count FROM job_events WHERE event_type = 'complete'"
    assert documents.conn.execute(query).fetchone() == {"count": 60}
    assert documents.temporary_files() == []
    assert {path.stem for path in Path(documents.results).iterdir()} == {str(job_id) for job_id in jobs}


def test_a_network_that_swallows_everything_costs_the_lease_and_no_more(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
    proxy: TcpProxy,
) -> None:
    documents = own_documents()
    with proxy:
        process = supervisor(
            DATABASE_URL=f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?connect_timeout=2",
            WORKER_LEASE_TTL_SEC=4,
            WORKER_LEASE_EXTEND_SEC=1,
            WORKER_CONCURRENCY=1,
        )
        job_id = documents.upload()
        gateway.script_for(job_id, held(threading.Event()))
        documents.insert(job_id)
        wait_for_call(gateway, job_id)
        proxy.swallow()
        process.wait_for_event("lease_lost", job_id=str(job_id))
        proxy.listen()
        proxy.cut()
        assert documents.wait_for(job_id)["status"] == "complete"
        assert documents.row(job_id)["attempt_count"] == 2
        assert process.stop() == 0


def make_role(documents: Documents, name: str) -> None:
    """Like the owner of the tables, but without a superuser's exemption from limits."""
    for statement in (
        f"CREATE ROLE {name} LOGIN",
        f"GRANT USAGE ON SCHEMA public TO {name}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {name}",
    ):
        documents.conn.execute(statement.encode())


def terminate_all(documents: Documents) -> None:
    documents.conn.execute(f"SELECT pg_terminate_backend(pid) FROM ({SESSIONS}) AS sessions".encode())
