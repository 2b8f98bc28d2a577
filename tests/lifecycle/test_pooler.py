"""Behind a transaction pooler: the schema holds on every statement, and nothing of a session reaches other clients."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from convertq.embedded.postgres import EmbeddedPostgres, free_port
from psycopg.rows import dict_row

from tests.conftest import Dirs, Environment, Supervisor, Web, migrate
from tests.documents import Documents
from tests.gateway_behaviours import abandoned
from tests.lifecycle.conftest import wait_for_call
from tests.processes import run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, eventually

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(not PGBOUNCER, reason="pgbouncer is not installed")

SETTINGS = """
[databases]
* = host=127.0.0.1 port={server_port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
logfile = {directory}/log
pidfile = {directory}/pid
"""


@pytest.fixture
def pooler_settings() -> str:
    """Further lines of the pooler's configuration; a test may say others."""
    return ""


@pytest.fixture
def pooler_port(own_postgres: EmbeddedPostgres, tmp_path: Path, pooler_settings: str) -> Iterator[int]:
    directory, port = tmp_path / "pgbouncer", free_port()
    directory.mkdir()
    settings = directory / "pgbouncer.ini"
    settings.write_text(
        SETTINGS.format(server_port=own_postgres.port, port=port, directory=directory) + pooler_settings
    )
    as_nobody = ["-u", "nobody"] if os.geteuid() == 0 else []
    for path in (directory, *directory.parents):
        if path.owner() == "root" and path.name.startswith(("pytest", "test_", "pgbouncer", "popen")):
            path.chmod(0o777)
    pooler = subprocess.Popen([str(PGBOUNCER), *as_nobody, str(settings)], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(port), what="the pooler to answer")
        yield port
    finally:
        pooler.terminate()
        pooler.wait(10)


def answers(port: int) -> bool:
    try:
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("hint", ["", "&pgbouncer=true"])
def test_jobs_are_converted_and_nothing_leaks_to_other_clients(
    own_postgres: EmbeddedPostgres, pooler_port: int, supervisor: Supervisor, dirs: Dirs, hint: str
) -> None:
    migrate(f"{own_postgres.url()}?schema=Other_App")
    pooled = f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres"
    options = '-c search_path="Other_App"'
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row, options=options) as direct:
        supervisor(DATABASE_URL=f"{pooled}?schema=Other_App{hint}")
        documents = Documents(direct, dirs.uploads, dirs.results)
        jobs = documents.put_many(10)
        eventually(lambda: all(documents.row(job)["status"] == "complete" for job in jobs), what="ten to complete")
    for _ in range(3):  # one for each connection of the pool
        with psycopg.connect(pooled) as other:
            assert other.execute("SHOW search_path").fetchone() == ('"$user", public',)
            assert other.execute("SHOW statement_timeout").fetchone() == ("0",)
            assert other.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)
            assert other.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)


def test_with_a_direct_url_the_supervisor_listens_although_its_workers_are_behind_the_pooler(
    own_postgres: EmbeddedPostgres, pooler_port: int, supervisor: Supervisor, dirs: Dirs, environment: Environment
) -> None:
    """Workers that poll once a minute convert within the deadline only if they are woken up. The schema of the direct
    URL is that of the other one."""
    urls = {
        "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres?schema=Other_App",
        "DATABASE_DIRECT_URL": own_postgres.url(),
    }
    assert run("migrate", environment=environment(**urls)).returncode == 0
    options = '-c search_path="Other_App"'
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row, options=options) as direct:
        process = supervisor(**urls, WORKER_POLL_INTERVAL_MS=3_600_000)
        documents = Documents(direct, dirs.uploads, dirs.results)
        for _ in range(3):
            documents.wait_for(documents.put())
        assert process.events("db_down") == []


@pytest.mark.parametrize("pooler_settings", ["ignore_startup_parameters = options\n"])
def test_a_pooler_that_drops_the_session_settings_without_a_word_is_noticed(
    own_postgres: EmbeddedPostgres, pooler_port: int, supervisor: Supervisor, dirs: Dirs
) -> None:
    pooled = f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres"
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row) as direct:
        process = supervisor(DATABASE_URL=pooled, WORKER_CONCURRENCY=4)
        documents = Documents(direct, dirs.uploads, dirs.results)
        documents.wait_for_all(documents.put_many(200), "complete")
    assert process.events("db_down") == []
    assert process.events("retry") == []


def prepared_behind(pooled: str) -> set[str]:
    """On the server connection that this client gets: the names of the statements without their hashes."""
    with psycopg.connect(pooled, prepare_threshold=None) as client:
        names = client.execute("SELECT name FROM pg_prepared_statements WHERE starts_with(name, 'convertq_')")
        return {name.rpartition("_")[0] for (name,) in names}


@pytest.mark.parametrize("pooler_settings", ["default_pool_size = 1\n"])
def test_all_workers_share_the_plans_of_a_server_connection(
    own_postgres: EmbeddedPostgres, pooler_port: int, supervisor: Supervisor, dirs: Dirs
) -> None:
    """Eight clients of one server connection, which are of two schemas."""
    migrate(f"{own_postgres.url()}?schema=Other_App")
    pooled = f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres"
    processes = [supervisor(DATABASE_URL=f"{pooled}?schema={schema}") for schema in ("public", "Other_App")]
    for schema in ("public", '"Other_App"'):
        options = f"-c search_path={schema}"
        with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row, options=options) as direct:
            documents = Documents(direct, dirs.uploads, dirs.results)
            documents.wait_for_all(documents.put_many(50), "complete")
    assert "convertq_complete_and_claim" in prepared_behind(pooled)
    for process in processes:
        assert process.events("db_down") == []
        assert process.events("retry") == []


@pytest.mark.parametrize(
    ("pooler_settings", "hint"),
    [
        ("server_reset_query = DISCARD ALL\nserver_reset_query_always = 1\n", ""),
        ("", "?statement_cache_size=0"),
    ],
)
def test_jobs_are_converted_where_nothing_stays_prepared(
    own_postgres: EmbeddedPostgres, pooler_port: int, supervisor: Supervisor, dirs: Dirs, hint: str
) -> None:
    pooled = f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres"
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row) as direct:
        process = supervisor(DATABASE_URL=pooled + hint, WORKER_CONCURRENCY=4)
        documents = Documents(direct, dirs.uploads, dirs.results)
        documents.wait_for_all(documents.put_many(100), "complete")
    assert prepared_behind(pooled) == set()
    assert process.events("db_down") == []
    assert process.events("retry") == []


@pytest.fixture
def foreign_settings(own_postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(own_postgres.url(), autocommit=True) as direct:
        direct.execute("ALTER DATABASE postgres SET datestyle = 'German'")
        direct.execute("ALTER DATABASE postgres SET timezone = 'Asia/Kathmandu'")
        direct.execute("ALTER DATABASE postgres SET client_encoding = 'LATIN1'")


@pytest.mark.parametrize("pooler_settings", ["", "ignore_startup_parameters = options\n"])
def test_a_database_with_settings_of_its_own_is_served_through_the_pooler(
    own_postgres: EmbeddedPostgres, foreign_settings: None, pooler_port: int, supervisor: Supervisor, dirs: Dirs
) -> None:
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row) as direct:
        process = supervisor(DATABASE_URL=f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres")
        documents = Documents(direct, dirs.uploads, dirs.results)
        documents.wait_for_all(documents.put_many(10), "complete")
    assert process.events("worker_died") == []
    assert process.events("db_down") == []


def test_the_web_serves_through_the_pooler_in_its_own_schema(
    own_postgres: EmbeddedPostgres, pooler_port: int, web: Web
) -> None:
    migrate(f"{own_postgres.url()}?schema=Other_App")
    pooled = f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres"
    site = web(DATABASE_URL=f"{pooled}?schema=Other_App")
    visitors = [site.visitor() for _ in range(6)]
    jobs = {visitor.submitted(): visitor for visitor in visitors}
    for job_id, visitor in jobs.items():
        assert [job["id"] for job in visitor.get("/api/jobs").json()["jobs"]] == [str(job_id)]
    assert site.operator().get("/api/admin/stats").json()["jobs"]["queued"] == 6
    with psycopg.connect(own_postgres.url()) as direct:
        assert direct.execute('SELECT count(*) FROM "Other_App".jobs').fetchone() == (6,)
    with psycopg.connect(pooled) as other:
        assert other.execute("SHOW search_path").fetchone() == ('"$user", public',)
        assert other.execute("SHOW statement_timeout").fetchone() == ("0",)
        assert other.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_a_running_job_is_cancelled_through_the_pooler(
    own_postgres: EmbeddedPostgres,
    pooler_port: int,
    supervisor: Supervisor,
    environment: Environment,
    gateway: StandInGateway,
    dirs: Dirs,
) -> None:
    """There is no LISTEN: the worker learns of it with its next progress report."""
    pooled, closed = f"postgresql://postgres@127.0.0.1:{pooler_port}/postgres", threading.Event()
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row) as direct:
        process = supervisor(DATABASE_URL=pooled, WORKER_CONCURRENCY=1, GATEWAY_TIMEOUT_MS=60_000)
        documents = Documents(direct, dirs.uploads, dirs.results)
        job_id = documents.upload()
        gateway.script_for(job_id, abandoned(closed))
        documents.insert(job_id)
        wait_for_call(gateway, job_id)
        assert run("cancel", str(job_id), environment=environment(DATABASE_URL=pooled)).returncode == 0
        assert closed.wait(WAIT_SECONDS)
        process.wait_for_event("cancelled", job_id=str(job_id))
        assert documents.wait_for(documents.put())["status"] == "complete"
        assert documents.story(job_id) == "created queued processing cancelled"
        documents.wait_until_tidy()
