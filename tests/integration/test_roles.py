"""sql/roles.sql: what each role can do, as a program that logs in with it, and what none can."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from convertq.embedded.binaries import find_prefix
from psycopg import sql
from psycopg.rows import dict_row

from tests.conftest import Convertq, Dirs, Environment, Server, Web, migrate
from tests.jobs import (
    Conn,
    claim,
    claimed,
    complete,
    events_of,
    fail,
    insert_job,
    insert_jobs,
    queue,
    queued_job,
    row_of,
    run,
    set_status,
    status_of,
    uncounted_events,
)
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
        eventually(lambda name=name: is_dropped(conn, name), what=f"the role {name} can be dropped")  # type: ignore[misc]


def is_dropped(conn: Conn, name: str) -> bool:
    """A session that has been closed removes its temporary tables before it ends, and until then they need its role."""
    try:
        conn.execute(f"DROP ROLE {name}_user; DROP OWNED BY {name}; DROP ROLE {name}")
    except psycopg.errors.DependentObjectsStillExist:
        return False
    return True


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


#: every right in the schema and in the defaults for new objects; the roles' attributes, settings and members
RIGHTS = """
    SELECT relname AS name, relacl::text AS rights FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT attrelid::regclass || '.' || attname, attacl::text FROM pg_attribute WHERE attacl IS NOT NULL
    UNION ALL SELECT proname, proacl::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT nspname, nspacl::text FROM pg_namespace WHERE nspname = 'public'
    UNION ALL SELECT roleid::regrole::text, member::regrole::text FROM pg_auth_members
               WHERE roleid::regrole::text = ANY(%(names)s) OR member::regrole::text = ANY(%(names)s)
    UNION ALL SELECT rolname, row_to_json(pg_roles)::text FROM pg_roles WHERE rolname = ANY(%(names)s)
    UNION ALL SELECT 'of ' || defaclrole::regrole, defaclacl::text FROM pg_default_acl
    ORDER BY 1, 2
"""


def test_running_the_script_again_changes_nothing(database_url: str, roles: dict[str, str], conn: Conn) -> None:
    names = {"names": list(roles.values())}
    before = conn.execute(RIGHTS, names).fetchall()
    assert any(roles["web"] in str(row["rights"]) for row in before)
    apply(database_url, roles)
    assert conn.execute(RIGHTS, names).fetchall() == before


def test_the_worker_can_claim_convert_complete_and_clean_up(
    convertq: Convertq, environment: Environment, url_as: AsRole, conn: Conn, dirs: Dirs
) -> None:
    mine = {"DATABASE_URL": url_as("worker")}
    source = dirs.uploads.parent / "invoice.pdf"
    source.write_bytes(b"%PDF-1.7\n%%EOF\n")
    worker = convertq("worker", "run", **mine)
    worker.wait_for_event("ready")
    submitted = run_convertq("submit", "--wait", str(source), environment=environment(**mine))
    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert worker.stop() == 0
    conn.execute("UPDATE jobs SET expires_at = '2000-01-01', completed_at = '2000-01-01', created_at = '2000-01-01'")
    conn.execute("INSERT INTO job_events (job_id, event_type, at) SELECT id, 'downloaded', '2000-01-01' FROM jobs")
    cleaned = run_convertq("cleanup", environment=environment(**mine))
    assert cleaned.stdout == "removed 1 source, 1 result, 1 event, 0 orphans, 0 temporary files, 0 jobs\n"
    cleaned = run_convertq("cleanup", environment=environment(**mine, RETENTION_JOBS_DAYS=1))
    assert (cleaned.stderr, cleaned.stdout.split(", ")[-1]) == ("", "1 job\n")
    forgotten = run_convertq("forget", str(queued_job(conn, dirs)), environment=environment(**mine))
    assert (forgotten.returncode, forgotten.stderr) == (0, "")


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


@pytest.mark.parametrize("kind", ["worker", "web"])
def test_who_completes_a_job_can_leave_its_dependants_to_the_worker(
    conn_as: Callable[[str], Conn], conn: Conn, kind: str
) -> None:
    """The worker by its own statement; an application by a plain UPDATE."""
    first = claimed(conn)
    with conn.transaction():
        dependant = insert_job(conn, "uploaded")
        run(conn, "add_dependency", id=dependant, depends_on=first.id)
    with conn.transaction():
        conn.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [dependant])
        if kind == "worker":
            assert complete(conn_as(kind), first)
        else:
            set_status(conn_as(kind), first.id, "complete")
    queue(conn_as("worker")).release_dependants(None)
    assert status_of(conn, dependant) == "queued"


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
    for command in ("pause", "resume"):
        moved = run_convertq(command, "--owner", "x", environment=given)
        assert (moved.returncode, moved.stderr) == (0, "")
    assert run(mine, "open_breaker_by_hand", gateways=["default"])


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


def test_the_web_aggregates_the_counters_where_no_supervisor_runs(web: Web, url_as: AsRole, conn: Conn) -> None:
    insert_jobs(conn, 12_000)
    visitor = web(DATABASE_URL=url_as("web")).visitor()
    assert visitor.get("/api/status").json()["queue_depth"] == 12_000
    eventually(lambda: uncounted_events(conn) < 10_000, what="the events are aggregated")


def test_a_web_that_may_not_write_the_counters_still_reads_them(web: Web, url_as: AsRole, conn: Conn) -> None:
    """As after an upgrade, before this script was run again."""
    insert_jobs(conn, 12_000)
    site = web(DATABASE_URL=url_as("monitor"))
    for _ in range(3):
        assert site.visitor().get("/api/status").json()["queue_depth"] == 12_000
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


@pytest.mark.parametrize("kind", ["web", "monitor"])
def test_only_the_worker_can_remove_jobs(conn_as: Callable[[str], Conn], conn: Conn, kind: str) -> None:
    job_id = insert_job(conn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn_as(kind).execute("DELETE FROM jobs")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):  # nor can the worker by an oversight: history is in the way
        conn_as("worker").execute("DELETE FROM jobs")
    assert status_of(conn, job_id) == "queued"


@pytest.mark.parametrize("kind", KINDS)
def test_no_role_can_change_history_or_the_tables(conn_as: Callable[[str], Conn], kind: str) -> None:
    mine = conn_as(kind)
    statements: list[Any] = [
        "TRUNCATE job_events", "UPDATE job_events SET meta = '{}'", "DROP TABLE jobs CASCADE",
        "ALTER TABLE jobs DISABLE TRIGGER ALL", "UPDATE schema_migrations SET version = 1",
        "DELETE FROM circuit_breaker",
    ]  # fmt: skip
    for statement in statements:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            mine.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET status = 'failed', error_code = 'X', own_transitions = own_transitions + 1",
        "UPDATE jobs SET own_transitions = 9",
        "INSERT INTO jobs (bytes, sha256, own_transitions) VALUES (1, repeat('a', 64), 1)",
    ],
)
@pytest.mark.parametrize("kind", ["web", "monitor"])
def test_only_the_worker_has_the_right_to_pass_by_the_triggers(
    conn_as: Callable[[str], Conn], conn: Conn, kind: str, statement: LiteralString
) -> None:
    job = insert_job(conn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn_as(kind).execute(statement)
    assert (status_of(conn, job), events_of(conn, job)) == ("queued", ["created", "queued"])


def test_the_web_application_may_write_every_other_column(conn_as: Callable[[str], Conn], conn: Conn) -> None:
    columns = [name for name in row_of(conn, insert_job(conn)) if name != "own_transitions"]
    change: Any = "UPDATE jobs SET " + ", ".join(f"{name} = {name}" for name in columns)
    conn_as("web").execute(change)


@pytest.mark.parametrize("kind", ["web", "monitor"])
def test_only_the_worker_can_delete_events(conn_as: Callable[[str], Conn], kind: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(conn_as(kind), "delete_events", ids=[1])


def test_only_the_roles_that_aggregate_counters_can_recount_the_jobs(conn_as: Callable[[str], Conn]) -> None:
    run(conn_as("worker"), "recount_jobs")
    run(conn_as("web"), "recount_jobs")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(conn_as("monitor"), "recount_jobs")


@pytest.mark.parametrize(
    ("statement", "given"),
    [("make_event_partition", {"ahead": 4}), ("drop_event_partition", {"name": "x", "unchanged_since": "3"})],
)
def test_only_the_worker_can_create_and_drop_partitions_of_events(
    conn_as: Callable[[str], Conn], statement: str, given: dict[str, Any]
) -> None:
    assert run(conn_as("worker"), statement, **given)[0]["outcome"] in ("made", "kept")
    for kind in ("web", "monitor"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(conn_as(kind), statement, **given)


def test_the_worker_drops_an_old_partition_with_its_own_rights(
    environment: Environment, url_as: AsRole, conn: Conn
) -> None:
    job = claimed(conn)
    assert complete(conn, job)
    conn.execute("ALTER TABLE job_events DISABLE TRIGGER USER")
    conn.execute("UPDATE job_events SET at = now() - interval '100 days'")
    conn.execute("ALTER TABLE job_events ENABLE TRIGGER USER")
    conn.execute("SELECT setval('job_events_id_seq', 10000000)")
    insert_job(conn)
    done = run_convertq("cleanup", environment=environment(DATABASE_URL=url_as("worker")))
    assert " 4 events," in done.stdout, done.stderr
    assert not conn.execute("SELECT FROM event_partitions() WHERE first_id = 1").fetchall()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["id", "xact_id"])
def test_no_role_chooses_the_id_or_the_transaction_of_an_event(
    conn_as: Callable[[str], Conn], conn: Conn, kind: str, column: str
) -> None:
    """The aggregation relies on both."""
    job_id = insert_job(conn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn_as(kind).execute(
            sql.SQL("INSERT INTO job_events ({}, job_id, event_type) VALUES ('7', %s, 'queued')").format(
                sql.Identifier(column)
            ),
            [job_id],
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statement", ["SELECT FROM {}", "INSERT INTO {} SELECT", "DELETE FROM {}", "DROP TABLE {}"])
def test_no_role_has_rights_on_a_partition_itself(conn_as: Callable[[str], Conn], kind: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn_as(kind).execute(statement.format("job_events_1_10000000").encode())


def test_a_stranger_can_run_nothing_that_has_its_owners_rights(roles: dict[str, str], conn: Conn) -> None:
    query = """SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef
                  AND (proacl IS NULL OR EXISTS (SELECT FROM aclexplode(proacl) WHERE grantee = 0))"""
    assert conn.execute(query).fetchall() == []


@pytest.mark.parametrize("event_first", [True, False])
@pytest.mark.parametrize("kind", ["worker", "web"])
def test_a_role_brings_its_own_event_before_or_after_its_change(
    conn_as: Callable[[str], Conn], conn: Conn, kind: str, event_first: bool
) -> None:
    job_id, mine = insert_job(conn, "uploaded"), conn_as(kind)
    change = ("UPDATE jobs SET status = 'queued' WHERE id = %s", [job_id])
    event = ("INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'queued', '{\"by\": \"web\"}')", [job_id])
    with mine.transaction():
        for statement, parameters in (event, change) if event_first else (change, event):
            mine.execute(statement, parameters)
    assert [row["meta"] for row in run(conn, "list_events", id=job_id)] == [{}, {"by": "web"}]


def test_a_role_cannot_borrow_the_right_to_delete_an_event(conn_as: Callable[[str], Conn], conn: Conn) -> None:
    """The trigger that takes an event back has its owner's rights: on a table of one's own it could take any."""
    mine = conn_as("web")
    mine.execute("CREATE TEMP TABLE events (LIKE public.job_events)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"for function .*yield_to_brought_event"):
        mine.execute(
            "CREATE TRIGGER borrowed AFTER INSERT ON events FOR EACH ROW"
            " EXECUTE FUNCTION public.yield_to_brought_event()"
        )


def test_a_schema_of_another_name_has_its_rights_too(database_url: str, roles: dict[str, str], conn: Conn) -> None:
    migrate(f"{database_url}&schema=Mine")
    apply(database_url, roles, schema="Mine")
    conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(roles["worker"])))
    conn.execute('INSERT INTO "Mine".jobs (bytes, sha256, status) VALUES (1, %s, %s)', ["x" * 64, "queued"])
    conn.execute("RESET ROLE")
    eventually(lambda: conn.execute('SELECT FROM "Mine".job_events').fetchall())
    conn.execute('DROP SCHEMA "Mine" CASCADE')
