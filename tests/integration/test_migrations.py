"""migrate: each applied once, in its own transaction, and nothing edited or newer accepted."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from convertq import sql
from convertq.queue.database import connection as db
from convertq.queue.database import migrations
from convertq.queue.database.database import Database
from convertq.queue.database.errors import SchemaError
from convertq.queue.database.migrations import LockHolder, MigrationError
from convertq.queue.database.url import parse_database_url
from convertq.sql import Migration

from tests.conftest import Environment
from tests.jobs import Conn, begin, insert_job, one, run, together
from tests.processes import run as run_convertq
from tests.waiting import WAIT_SECONDS

VERSIONS = [migration.version for migration in sql.migrations()]
SUPPORTED = [migration.supports_code_from for migration in sql.migrations()]
KNOWN = VERSIONS[-1]


@pytest.fixture
def connection(database_url: str) -> Iterator[db.BoundedConnection]:
    with db.connect(parse_database_url(database_url), "convertq:tests") as opened:
        yield opened


def applied(conn: Conn, schema: str = "public") -> list[int]:
    rows = conn.execute(f'SELECT version FROM "{schema}".schema_migrations ORDER BY version'.encode())
    return [row["version"] for row in rows]


def test_versions_are_counted_from_one_without_a_gap() -> None:
    assert list(range(1, len(VERSIONS) + 1)) == VERSIONS


def test_a_migrated_database_has_each_on_record(conn: Conn) -> None:
    rows = conn.execute("SELECT version, name, checksum FROM schema_migrations ORDER BY version").fetchall()
    assert [tuple(row.values()) for row in rows] == [(m.version, m.name, m.checksum) for m in sql.migrations()]


def test_again_there_is_nothing_to_do(connection: db.BoundedConnection) -> None:
    assert migrations.migrate(connection, "public") == []


def test_a_missing_schema_is_made(connection: db.BoundedConnection, conn: Conn) -> None:
    assert [migration.version for migration in migrations.migrate(connection, "tenant")] == VERSIONS
    assert applied(conn, "tenant") == VERSIONS
    Database(connection, "tenant").check_schema()


@pytest.mark.parametrize("schema", ["Tenant", "select", "_", "a" * 63, "User"])
def test_odd_names_are_names(connection: db.BoundedConnection, conn: Conn, schema: str) -> None:
    migrations.migrate(connection, schema)
    assert applied(conn, schema) == VERSIONS
    conn.execute(
        f"INSERT INTO \"{schema}\".jobs (bytes, sha256, status) VALUES (1, repeat('a', 64), 'queued')".encode()
    )


def test_names_that_differ_in_capitals_are_two_schemas(connection: db.BoundedConnection, conn: Conn) -> None:
    migrations.migrate(connection, "Tenant")
    migrations.migrate(connection, "tenant")
    assert (applied(conn, "Tenant"), applied(conn, "tenant")) == (VERSIONS, VERSIONS)


def test_nothing_outside_the_schema_is_used(connection: db.BoundedConnection, conn: Conn) -> None:
    migrations.migrate(connection, "tenant")
    conn.execute("ALTER SCHEMA public RENAME TO elsewhere")
    conn.execute("INSERT INTO tenant.jobs (bytes, sha256, status) VALUES (1, repeat('a', 64), 'queued')")
    assert one(conn, "SELECT count(*) FROM tenant.job_events")["count"] == 2


def test_up_to_a_version_and_then_the_rest(connection: db.BoundedConnection, conn: Conn) -> None:
    assert [migration.version for migration in migrations.migrate(connection, "tenant", to=1)] == [1]
    states = migrations.migration_states(Database(connection, "tenant"))
    assert [state.state for state in states] == ["applied", *["pending"] * (len(VERSIONS) - 1)]
    with pytest.raises(SchemaError, match=r"is at version 1.*run `convertq migrate`"):
        Database(connection, "tenant").check_schema()
    migrations.migrate(connection, "tenant")
    assert applied(conn, "tenant") == VERSIONS


def test_a_program_that_writes_jobs_goes_on_while_its_rights_are_those_of_before(
    connection: db.BoundedConnection, conn: Conn
) -> None:
    """roles.sql is run after the migration."""
    migrations.migrate(connection, "tenant", to=7)
    writer = f"writer_{uuid4().hex}"
    conn.execute(f"CREATE ROLE {writer}".encode())
    try:
        conn.execute(f"GRANT USAGE ON SCHEMA tenant TO {writer}".encode())
        conn.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA tenant TO {writer}".encode())
        conn.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA tenant TO {writer}".encode())
        conn.execute(f"REVOKE INSERT ON tenant.jobs FROM {writer}".encode())
        conn.execute(f"GRANT INSERT (bytes, sha256, status) ON tenant.jobs TO {writer}".encode())
        migrations.migrate(connection, "tenant")
        conn.execute(f"SET ROLE {writer}".encode())
        conn.execute("INSERT INTO tenant.jobs (bytes, sha256, status) VALUES (1, repeat('a', 64), 'queued')")
        conn.execute("UPDATE tenant.jobs SET status = 'cancelled'")
    finally:
        conn.execute("RESET ROLE")
        conn.execute(f"DROP OWNED BY {writer}".encode())
        conn.execute(f"DROP ROLE {writer}".encode())


def test_there_is_no_way_back(connection: db.BoundedConnection) -> None:
    with pytest.raises(MigrationError, match=r"is at version \d+: migrations do not go back to 1"):
        migrations.migrate(connection, "public", to=1)


@pytest.mark.parametrize("version", [0, -1, 9999])
def test_a_version_that_does_not_exist_is_refused(connection: db.BoundedConnection, version: int) -> None:
    with pytest.raises(MigrationError, match=f"there is no migration {version}"):
        migrations.migrate(connection, "tenant", to=version)


def test_an_edited_migration_is_refused(connection: db.BoundedConnection, conn: Conn) -> None:
    conn.execute("UPDATE schema_migrations SET checksum = repeat('0', 64) WHERE version = 1")
    with pytest.raises(MigrationError, match=r"migration 1 \(tables\) was edited after it was applied"):
        migrations.migrate(connection, "public")
    assert migrations.migration_states(Database(connection, "public"))[0].state == "edited"


def test_a_newer_database_is_refused(connection: db.BoundedConnection, conn: Conn) -> None:
    conn.execute("INSERT INTO schema_migrations (version, name, checksum) VALUES (9999, 'later', repeat('0', 64))")
    with pytest.raises(MigrationError, match=r"is at version 9999 \(later\).*upgrade convertq"):
        migrations.migrate(connection, "public")
    with pytest.raises(SchemaError, match=r"9999.*upgrade convertq"):
        Database(connection, "public").check_schema()


def test_a_database_without_tables_says_what_to_do(connection: db.BoundedConnection) -> None:
    for schema in ("tenant", "pg_catalog"):
        with pytest.raises(SchemaError, match=f"the schema {schema} has no convertq tables: run `convertq migrate`"):
            Database(connection, schema).check_schema()


def test_looking_at_the_states_makes_nothing(connection: db.BoundedConnection, conn: Conn) -> None:
    states = migrations.migration_states(Database(connection, "tenant"))
    assert {state.state for state in states} == {"pending"}
    assert conn.execute("SELECT FROM pg_namespace WHERE nspname = 'tenant'").fetchall() == []


def test_one_that_breaks_leaves_nothing_of_itself(connection: db.BoundedConnection, conn: Conn) -> None:
    conn.execute("CREATE SCHEMA tenant")
    conn.execute("CREATE TABLE tenant.circuit_breaker ()")  # made last by the first migration
    with pytest.raises(psycopg.errors.DuplicateTable):
        migrations.migrate(connection, "tenant")
    assert conn.execute("SELECT FROM pg_tables WHERE schemaname = 'tenant' AND tablename = 'jobs'").fetchall() == []
    conn.execute("DROP TABLE tenant.circuit_breaker")
    assert [migration.version for migration in migrations.migrate(connection, "tenant")] == VERSIONS


def test_two_at_once_apply_each_once(database_url: str, conn: Conn) -> None:
    def migrate() -> list[int]:
        with db.connect(parse_database_url(database_url), "convertq:tests") as opened:
            return [migration.version for migration in migrations.migrate(opened, "tenant")]

    done = together(migrate, migrate, migrate)
    assert all(isinstance(versions, list) for versions in done), done
    assert sorted(version for versions in done if isinstance(versions, list) for version in versions) == VERSIONS
    assert applied(conn, "tenant") == VERSIONS


def test_the_second_waits_for_the_first(connection: db.BoundedConnection, conn: Conn) -> None:
    waiting = threading.Event()
    pids: list[int | None] = []

    def waits(holder: LockHolder) -> None:
        pids.append(holder.pid)
        waiting.set()

    with conn.transaction():
        assert run(conn, "lock_migrations", name="tenant")[0]["locked"]
        second = begin(lambda: migrations.migrate(connection, "tenant", waits=waits))
        assert waiting.wait(WAIT_SECONDS)
    assert [migration.version for migration in second.result(10)] == VERSIONS
    assert set(pids) == {conn.info.backend_pid}


def test_it_gives_up_after_its_timeout_and_says_why(environment: Environment, conn: Conn) -> None:
    conn.execute("SET application_name = 'report'")
    with conn.transaction():
        conn.execute(sql.query("lock_migrations", "public"), {"name": "public"})
        done = run_convertq("migrate", "--timeout", "1", environment=environment())
    assert (done.returncode, done.stdout) == (1, "")
    who = rf"waiting for session {conn.info.backend_pid} \(report, in a transaction since .* UTC\)"
    first, last = done.stderr.splitlines()
    assert re.fullmatch(f"convertq: {who}", first)
    assert re.fullmatch(f"convertq: gave up after 1 s {who}; run it again", last)


# -- migrations of later releases --


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Migration]:
    """`later(text)`: the code of a later release, which has one more migration."""
    known = list(sql.migrations())

    def later(text: str) -> Migration:
        known.append(Migration(known[-1].version + 1, "later", text))
        monkeypatch.setattr(sql, "migrations", lambda: tuple(known))
        return known[-1]

    return later


def test_the_oldest_code_that_works_with_a_migration_is_on_record(
    later: Callable[[str], Migration], connection: db.BoundedConnection, conn: Conn
) -> None:
    additive = later(f"-- A table more.\n-- supports code from: {VERSIONS[-1]}\nCREATE TABLE {{schema}}.more ();")
    breaking = later("-- A table less.\nDROP TABLE {schema}.more;")
    assert migrations.migrate(connection, "public") == [additive, breaking]
    rows = conn.execute("SELECT version, supports_code_from FROM schema_migrations ORDER BY version").fetchall()
    assert [row["supports_code_from"] for row in rows] == [*SUPPORTED, VERSIONS[-1], breaking.version]
    states = migrations.migration_states(Database(connection, "public"))
    assert [state.supports_code_from for state in states] == [*SUPPORTED, VERSIONS[-1], breaking.version]


@pytest.mark.parametrize(
    ("supports", "works"), [([KNOWN], True), ([1, KNOWN], True), ([KNOWN + 1], False), ([KNOWN, KNOWN + 2], False)]
)
def test_older_code_works_exactly_when_every_newer_migration_supports_it(
    connection: db.BoundedConnection, conn: Conn, supports: list[int], works: bool
) -> None:
    for number, oldest in enumerate(supports, start=1):
        conn.execute(
            "INSERT INTO schema_migrations (version, name, checksum, supports_code_from)"
            " VALUES (%s, 'later', repeat('0', 64), %s)",
            [KNOWN + number, oldest],
        )
    database = Database(connection, "public")
    if works:
        database.check_schema()
        assert migrations.migrate(connection, "public") == []
        return
    with pytest.raises(SchemaError, match="upgrade convertq"):
        database.check_schema()
    with pytest.raises(MigrationError, match="upgrade convertq"):
        migrations.migrate(connection, "public")


def test_up_to_the_newest_known_version_works_in_a_newer_database(connection: db.BoundedConnection, conn: Conn) -> None:
    later = f"INSERT INTO schema_migrations VALUES ({KNOWN + 1}, 'later', repeat('0', 64), now(), {KNOWN})"
    conn.execute(later.encode())
    assert migrations.migrate(connection, "public", to=KNOWN) == []


CONCURRENTLY = """-- An index that is built beside the queue.
-- supports code from: 1
-- outside a transaction
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS jobs_by_size ON {schema}.jobs (bytes);

CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_by_mapping ON {schema}.jobs (mapping)
    WHERE status = 'complete';
"""
VALID = "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname LIKE 'jobs_by_%%'"


def indexes(conn: Conn) -> dict[str, bool]:
    rows = conn.execute(VALID).fetchall()
    return {row["relname"]: row["indisvalid"] for row in rows if row["relname"] in ("jobs_by_size", "jobs_by_mapping")}


def test_an_index_can_be_built_outside_a_transaction(
    later: Callable[[str], Migration], connection: db.BoundedConnection, conn: Conn
) -> None:
    migration = later(CONCURRENTLY)
    assert migrations.migrate(connection, "public") == [migration]
    assert indexes(conn) == {"jobs_by_size": True, "jobs_by_mapping": True}
    assert applied(conn)[-1] == migration.version
    assert conn.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'").fetchall() == []
    assert one(connection, "SELECT current_setting('lock_timeout') AS limit") == {"limit": "5s"}


def test_an_invalid_index_that_an_interruption_left_is_built_again(
    later: Callable[[str], Migration], connection: db.BoundedConnection, conn: Conn
) -> None:
    jobs = [insert_job(conn), insert_job(conn)]
    migration = later(CONCURRENTLY)
    with pytest.raises(psycopg.errors.UniqueViolation):
        migrations.migrate(connection, "public")
    assert indexes(conn) == {"jobs_by_size": False}
    assert applied(conn)[-1] == KNOWN
    conn.execute("UPDATE jobs SET bytes = bytes + 1 WHERE id = %s", [jobs[0]])
    assert migrations.migrate(connection, "public") == [migration]
    assert indexes(conn) == {"jobs_by_size": True, "jobs_by_mapping": True}
    assert applied(conn)[-1] == migration.version


def test_two_that_build_an_index_at_once_build_it_once(
    later: Callable[[str], Migration], database_url: str, conn: Conn
) -> None:
    migration = later(CONCURRENTLY)

    def migrate() -> list[int]:
        with db.connect(parse_database_url(database_url), "convertq:tests", statement_timeout=0) as opened:
            return [each.version for each in migrations.migrate(opened, "public")]

    done = together(migrate, migrate)
    assert [] in done
    assert [migration.version] in done
    assert indexes(conn) == {"jobs_by_size": True, "jobs_by_mapping": True}


def test_an_index_is_not_built_through_a_pooler(
    later: Callable[[str], Migration], connection: db.BoundedConnection, conn: Conn
) -> None:
    migration = later(CONCURRENTLY)
    connection.expect_pooler()
    with pytest.raises(MigrationError, match=rf"{migration.version} .*cannot be applied through a transaction pooler"):
        migrations.migrate(connection, "public")
    assert indexes(conn) == {}


def test_the_states_say_which_code_is_supported(environment: Environment) -> None:
    done = run_convertq("migrate", "--status", environment=environment())
    heading, *lines = done.stdout.splitlines()
    assert heading.endswith("SUPPORTS CODE FROM")
    assert [line.split()[-1] for line in lines] == [f"{version:04}" for version in SUPPORTED]


@pytest.fixture
def poor(database_url: str, conn: Conn) -> Iterator[db.BoundedConnection]:
    """A role without the right to make schemas; one of PostgreSQL's own, so that none has to be made."""
    if not one(conn, "SELECT pg_has_role('pg_monitor', 'MEMBER') AS found")["found"]:
        pytest.skip("this server's user cannot act as another role")
    url = parse_database_url(f"{database_url}&options=-c%20role%3Dpg_monitor")
    with db.connect(url, "convertq:tests") as opened:
        yield opened


def test_without_the_right_to_make_schemas_an_existing_one_will_do(poor: db.BoundedConnection, conn: Conn) -> None:
    conn.execute("CREATE SCHEMA tenant")
    conn.execute("GRANT USAGE, CREATE ON SCHEMA tenant TO pg_monitor")
    assert [migration.version for migration in migrations.migrate(poor, "tenant")] == VERSIONS
    assert migrations.migrate(poor, "tenant") == []


def test_without_the_right_to_make_schemas_a_missing_one_is_refused(poor: db.BoundedConnection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        migrations.migrate(poor, "tenant")
