"""Owns the promises of migrate: each applied once, in its own transaction, and nothing edited or newer accepted."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from convertq import sql
from convertq.worker import db, migrations
from convertq.worker.database_url import parse_database_url
from convertq.worker.migrations import MigrationError

from tests.conftest import Connect
from tests.jobs import Conn, begin, one, together, wait_until_blocked

VERSIONS = [migration.version for migration in sql.migrations()]


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
    db.Database(connection, "tenant").check_schema()


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
    states = migrations.migration_states(db.Database(connection, "tenant"))
    assert [state.state for state in states] == ["applied", *["pending"] * (len(VERSIONS) - 1)]
    with pytest.raises(db.SchemaError, match=r"is at version 1.*run `convertq migrate`"):
        db.Database(connection, "tenant").check_schema()
    migrations.migrate(connection, "tenant")
    assert applied(conn, "tenant") == VERSIONS


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
    assert migrations.migration_states(db.Database(connection, "public"))[0].state == "edited"


def test_a_newer_database_is_refused(connection: db.BoundedConnection, conn: Conn) -> None:
    conn.execute("INSERT INTO schema_migrations (version, name, checksum) VALUES (9999, 'later', repeat('0', 64))")
    with pytest.raises(MigrationError, match=r"is at version 9999 \(later\).*upgrade convertq"):
        migrations.migrate(connection, "public")
    with pytest.raises(db.SchemaError, match=r"9999.*upgrade convertq"):
        db.Database(connection, "public").check_schema()


def test_a_database_without_tables_says_what_to_do(connection: db.BoundedConnection) -> None:
    for schema in ("tenant", "pg_catalog"):
        with pytest.raises(db.SchemaError, match=f"the schema {schema} has no convertq tables: run `convertq migrate`"):
            db.Database(connection, schema).check_schema()


def test_looking_at_the_states_makes_nothing(connection: db.BoundedConnection, conn: Conn) -> None:
    states = migrations.migration_states(db.Database(connection, "tenant"))
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


def test_the_second_waits_for_the_first(connection: db.BoundedConnection, conn: Conn, connect: Connect) -> None:
    with conn.transaction():
        conn.execute(sql.query("lock_migrations", "tenant"), {"name": "tenant"})
        second = begin(lambda: migrations.migrate(connection, "tenant"))
        wait_until_blocked(connect(), connection)
    assert [migration.version for migration in second.result(10)] == VERSIONS


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
