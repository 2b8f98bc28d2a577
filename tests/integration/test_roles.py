"""Owns the promises of sql/roles.sql: what each role can do, as a program that logs in with it, and what none can."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from convertq.cli.embedded_binaries import find_prefix
from psycopg import sql
from psycopg.rows import dict_row

from tests.conftest import Convertq, Dirs, Environment, Server, Web, migrate
from tests.jobs import Conn, claim, complete, fail, insert_job, queued_job, run, status_of
from tests.processes import run as run_convertq
from tests.waiting import Row, eventually

SCRIPT = Path(__file__).parents[2] / "sql" / "roles.sql"
KINDS = ("worker", "web", "monitor")
AsRole = Callable[[str], str]


def psql() -> str:
    found = shutil.which("psql") or str(find_prefix() / "bin" / "psql")
    if not Path(found).exists():
        pytest.skip("there is no psql here")
    return found


def apply(url: str, names: dict[str, str], schema: str = "public") -> None:
    variables = [word for kind, name in names.items() for word in ("-v", f"{kind}={name}")]
    subprocess.run(
        [psql(), "-X", "-q", "-v", f"schema={schema}", *variables, "-f", str(SCRIPT), url],
        check=True, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture
def roles(database_url: str, conn: Conn) -> Iterator[dict[str, str]]:
    """Names of this test's own: roles belong to the whole server. Each has a user that logs in."""
    names = {kind: f"cq_{kind}_{os.urandom(4).hex()}" for kind in KINDS}
    apply(database_url, names)
    for name in names.values():
        conn.execute(f"CREATE ROLE {name}_user LOGIN IN ROLE {name}")
    yield names
    for name in names.values():
        conn.execute(f"DROP ROLE {name}_user; DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
def url_as(roles: dict[str, str], pg_server: Server, conn: Conn) -> AsRole:
    if pg_server.password:
        pytest.skip("the server asks for passwords")

    def url_as(kind: str) -> str:
        return Server(pg_server.host, pg_server.port, f"{roles[kind]}_user").url(conn.info.dbname)

    return url_as


@pytest.fixture
def conn_as(url_as: AsRole) -> Iterator[Callable[[str], Conn]]:
    with ExitStack() as opened:

        def conn_as(kind: str) -> psycopg.Connection[Row]:
            connection = psycopg.connect(url_as(kind), autocommit=True, row_factory=dict_row)
            opened.callback(connection.close)
            return connection

        yield conn_as


def test_running_the_script_again_changes_nothing(database_url: str, roles: dict[str, str]) -> None:
    apply(database_url, roles)


def test_the_worker_can_claim_convert_complete_and_clean_up(
    convertq: Convertq, environment: Environment, url_as: AsRole, conn: Conn, dirs: Dirs
) -> None:
    mine = {"DATABASE_URL": url_as("worker")}
    source = dirs.uploads.parent / "invoice.pdf"
    source.write_bytes(b"%PDF-1.7\n%%EOF\n")
    worker = convertq("worker", "run", **mine)
    worker.wait_for_event("ready", timeout=15)
    submitted = run_convertq("submit", "--wait", str(source), environment=environment(**mine))
    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert worker.stop() == 0
    conn.execute("UPDATE jobs SET expires_at = '2000-01-01', completed_at = '2000-01-01', created_at = '2000-01-01'")
    conn.execute("INSERT INTO job_events (job_id, event_type, at) SELECT id, 'downloaded', '2000-01-01' FROM jobs")
    cleaned = run_convertq("cleanup", environment=environment(**mine))
    assert cleaned.stdout == "removed 1 source, 1 result, 1 event, 0 orphans, 0 temp files\n"


@pytest.mark.parametrize(
    "command", ["reclaim", "stats", "metrics", "servers --prune", "breaker open", "breaker close", "retry --failed"]
)
def test_the_worker_can_run_every_command_of_an_operator(
    environment: Environment, url_as: AsRole, conn: Conn, dirs: Dirs, command: str
) -> None:
    queued_job(conn, dirs)
    done = run_convertq(*command.split(), environment=environment(DATABASE_URL=url_as("worker")))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_worker_can_lose_retry_and_fail_a_job(conn_as: Callable[[str], Conn], conn: Conn) -> None:
    job_id = insert_job(conn)
    mine = conn_as("worker")
    assert fail(mine, claim(mine))
    assert run(mine, "retry_jobs", ids=[job_id])
    job = claim(mine)
    progress = {"step": "reading", "percent": 1, "bytes_done": 1, "bytes_total": 2, "message": None}
    assert run(mine, "report_progress", **job.fence, lease_ttl=9, **progress)
    assert complete(mine, job)
    assert status_of(conn, job_id) == "complete"


def test_the_web_application_can_submit_retry_and_count_downloads(
    environment: Environment, url_as: AsRole, conn_as: Callable[[str], Conn], conn: Conn, tmp_path: Path
) -> None:
    source = tmp_path / "invoice.pdf"
    source.write_bytes(b"%PDF-1.7\n%%EOF\n")
    mine, given = conn_as("web"), environment(DATABASE_URL=url_as("web"))
    job_id = run_convertq("submit", str(source), environment=given).stdout.strip()
    after = run_convertq("submit", "--owner", "x", "--after", job_id, str(source), environment=given)
    assert (after.returncode, after.stderr) == (0, "")
    assert fail(conn, claim(conn))
    assert run_convertq("retry", job_id, environment=given).returncode == 0
    assert complete(conn, claim(conn))  # and with it the other is queued
    assert run(mine, "count_download", id=job_id)
    assert run_convertq("reclaim", environment=given).returncode == 0
    assert run(mine, "open_breaker_by_hand")


def test_the_web_server_does_all_its_work_with_the_rights_of_the_web(web: Web, url_as: AsRole, conn: Conn) -> None:
    site = web(DATABASE_URL=url_as("web"))
    visitor, operator = site.visitor(), site.operator()
    job_id = visitor.submitted()
    assert fail(conn, claim(conn))
    assert visitor.post(f"/api/jobs/{job_id}/retry").status_code == 202
    for route in ("/ready", "/", "/api/status", f"/api/jobs/{job_id}", f"/api/jobs/{job_id}/events", "/metrics"):
        assert operator.get(route).status_code in (200, 403), route
    for route in ("stats", "servers", "jobs", "history", "breaker"):
        assert operator.get(f"/api/admin/{route}").status_code == 200, route
    for route in ("reclaim", "retry-failed", "breaker/open", "breaker/close"):
        assert operator.post(f"/api/admin/{route}").status_code == 200, route
    assert site.process.events("web_error") == []


def test_the_monitor_reads_everything_and_changes_nothing(
    environment: Environment, url_as: AsRole, conn: Conn, dirs: Dirs
) -> None:
    job_id = queued_job(conn, dirs)
    given = environment(DATABASE_URL=url_as("monitor"))
    for command in ("list", f"show {job_id}", "stats", "servers", "metrics", "breaker"):
        done = run_convertq(*command.split(), environment=given)
        assert (done.returncode, done.stderr) == (0, ""), command
    done = run_convertq("doctor", "--json", environment=given)
    assert "could not be checked" not in done.stdout
    assert [line.count("this user may not look") for line in done.stdout.splitlines()].count(1) == 1  # plans of updates
    refused = run_convertq("reclaim", environment=given)
    assert refused.returncode == 1
    assert refused.stderr == "convertq: the database refused: permission denied for table servers\n"


@pytest.mark.parametrize("kind", ["worker", "monitor"])
def test_no_session_is_hidden_from_the_doctor_of(
    environment: Environment, url_as: AsRole, conn: Conn, kind: str
) -> None:
    done = run_convertq("doctor", environment=environment(DATABASE_URL=url_as(kind)))
    assert "ok    idle sessions   none is idle in a transaction for over 5 min\n" in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_no_role_can_remove_jobs_or_change_history_or_the_tables(conn_as: Callable[[str], Conn], kind: str) -> None:
    mine = conn_as(kind)
    statements: list[Any] = [
        "DELETE FROM jobs", "TRUNCATE job_events", "UPDATE job_events SET meta = '{}'", "DROP TABLE jobs CASCADE",
        "ALTER TABLE jobs DISABLE TRIGGER ALL", "UPDATE schema_migrations SET version = 1",
        "DELETE FROM circuit_breaker",
    ]  # fmt: skip
    for statement in statements:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            mine.execute(statement)


@pytest.mark.parametrize("kind", ["web", "monitor"])
def test_only_the_worker_can_delete_events(conn_as: Callable[[str], Conn], kind: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(conn_as(kind), "delete_events", ids=[1])


def test_a_schema_of_another_name_has_its_rights_too(database_url: str, roles: dict[str, str], conn: Conn) -> None:
    migrate(f"{database_url}&schema=Mine")
    apply(database_url, roles, schema="Mine")
    conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(roles["worker"])))
    conn.execute('INSERT INTO "Mine".jobs (bytes, sha256, status) VALUES (1, %s, %s)', ["x" * 64, "queued"])
    conn.execute("RESET ROLE")
    eventually(lambda: conn.execute('SELECT FROM "Mine".job_events').fetchall())
    conn.execute('DROP SCHEMA "Mine" CASCADE')
