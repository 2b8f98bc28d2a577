"""A session: it has the settings that the code relies on, and those that its user chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from convertq.queue.database.connection import BoundedConnection, connect
from convertq.queue.database.database import Database
from convertq.queue.database.unreadable_row import UnreadableRow
from convertq.queue.database.url import parse_database_url
from psycopg import sql

from tests.conftest import Environment, Server
from tests.jobs import Conn, insert_job, open_database, row_of
from tests.processes import run as run_convertq

#: what a database or a role may have been given by somebody else
FOREIGN = {
    "datestyle": "German", "intervalstyle": "iso_8601", "timezone": "Asia/Kathmandu", "client_encoding": "LATIN1",
    "search_path": "nowhere, pg_catalog", "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on", "default_transaction_deferrable": "on", "lock_timeout": "1h",
}  # fmt: skip
REQUIRED_SETTINGS = {
    "datestyle": "ISO, MDY", "intervalstyle": "postgres", "timezone": "UTC", "client_encoding": "UTF8",
    "search_path": '"public"', "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off", "default_transaction_deferrable": "off", "lock_timeout": "5s",
}  # fmt: skip


@pytest.fixture
def foreign_settings(conn: Conn) -> None:
    for name, value in FOREIGN.items():
        change = "ALTER DATABASE {} SET {} = {}"
        values = sql.SQL(", ").join(sql.Literal(each) for each in value.split(", "))
        conn.execute(sql.SQL(change).format(sql.Identifier(conn.info.dbname), sql.SQL(name), values))


@pytest.fixture
def service(tmp_path: Path, pg_server: Server, conn: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service file that names this test's database."""
    file = tmp_path / "pg_service.conf"
    lines = [
        "[queue]", f"host={pg_server.host}", f"port={pg_server.port}", f"user={pg_server.user}",
        f"dbname={conn.info.dbname}", "options=-c geqo=off", "keepalives_idle=77", "connect_timeout=9",
    ]  # fmt: skip
    file.write_text("\n".join(lines))
    monkeypatch.setenv("PGSERVICEFILE", str(file))


def shown(connection: BoundedConnection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s) AS value", [name]).fetchone()
    assert row is not None
    return str(row["value"])


def parameters(connection: BoundedConnection) -> dict[str, str]:
    return connection.info.get_parameters()


@pytest.mark.usefixtures("foreign_settings")
def test_a_session_has_what_the_code_relies_on_whatever_the_database_says(database_url: str) -> None:
    with connect(parse_database_url(database_url), "convertq:tests") as connection:
        assert {name: shown(connection, name) for name in REQUIRED_SETTINGS} == REQUIRED_SETTINGS


def test_no_statement_is_compiled(database_url: str) -> None:
    """Where PostgreSQL has LLVM, that takes longer than to execute it."""
    with connect(parse_database_url(f"{database_url}&options=-c%20jit%3Don"), "convertq:tests") as connection:
        assert shown(connection, "jit") == "off"


@pytest.mark.usefixtures("foreign_settings")
def test_the_environment_does_not_change_how_times_are_written(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libpq sends PGDATESTYLE and PGTZ beside the options, and the server applies them last."""
    for name, value in (("PGDATESTYLE", "SQL"), ("PGTZ", "Asia/Tokyo"), ("PGCLIENTENCODING", "LATIN1")):
        monkeypatch.setenv(name, value)
    with connect(parse_database_url(database_url), "convertq:tests") as connection:
        assert {name: shown(connection, name) for name in REQUIRED_SETTINGS} == REQUIRED_SETTINGS


@pytest.mark.usefixtures("foreign_settings")
def test_commands_work_in_a_database_with_settings_of_its_own(environment: Environment, connect_plainly: Conn) -> None:
    job_id = insert_job(connect_plainly, original_filename="Rechnung für März.pdf")
    for command in ("list", f"show {job_id}", "stats", "metrics", "migrate --status"):
        done = run_convertq(*command.split(), environment=environment())
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.fixture
def connect_plainly(conn: Conn) -> Conn:
    """Opened before the database got its settings."""
    assert row_of(conn, insert_job(conn))
    return conn


@pytest.mark.parametrize("how", ["parameter", "environment"])
def test_a_service_file_keeps_its_options_beside_ours(service: None, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "environment":
        monkeypatch.setenv("PGSERVICE", "queue")
    url = parse_database_url("postgresql://" if how == "environment" else "postgresql:///?service=queue")
    with connect(url, "convertq:tests") as connection:
        assert (shown(connection, "geqo"), shown(connection, "lock_timeout")) == ("off", "5s")
        assert parameters(connection)["keepalives_idle"] == "77"
        assert parameters(connection)["connect_timeout"] == "9"
        assert parameters(connection)["keepalives_count"] == "3"


def test_options_of_the_environment_are_kept_too(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c geqo=off")
    with connect(parse_database_url(database_url), "convertq:tests") as connection:
        assert (shown(connection, "geqo"), shown(connection, "lock_timeout")) == ("off", "5s")


def test_keepalives_of_the_url_win_over_ours(database_url: str) -> None:
    url = parse_database_url(f"{database_url}&keepalives_idle=60&tcp_user_timeout=90000")
    with connect(url, "convertq:tests") as connection:
        found = parameters(connection)
    assert (found["keepalives_idle"], found["tcp_user_timeout"], found["keepalives_count"]) == ("60", "90000", "3")


def test_a_session_without_its_limits_counts_as_pooled(database_url: str) -> None:
    """As PgBouncer with `ignore_startup_parameters = options` makes it: accepted, and dropped."""
    with connect(parse_database_url(database_url), "convertq:tests") as connection:
        database = Database(connection, "public")
        database.check_schema()
        assert not connection.is_pooled
        connection.execute("SET statement_timeout = 0")
        database.check_schema()
        assert (connection.is_pooled, connection.prepare_threshold) == (True, None)


@pytest.mark.parametrize("command", ["list", "migrate", "worker run", "stats"])
def test_a_port_that_is_no_number_is_a_wrong_setting_for_every_command(environment: Environment, command: str) -> None:
    wrong = "postgresql://u:hunter2@localhost:port/db"
    done = run_convertq(*command.split(), environment=environment(DATABASE_URL=wrong))
    assert done.returncode == 78
    assert done.stderr.splitlines() == [
        "convertq: DATABASE_URL = 'postgresql://u:***@localhost:port/db': its port must be a number from 1 to 65535"
    ]


@pytest.fixture
def ascii_url(pg_server: Server, admin: psycopg.Connection) -> Iterator[str]:
    name = "convertq_ascii"
    admin.execute(
        sql.SQL("CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0").format(sql.SQL(name))
    )
    yield pg_server.url(name)
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.SQL(name)))


def test_migrate_and_doctor_demand_utf8_by_name(environment: Environment, ascii_url: str) -> None:
    given = environment(DATABASE_URL=ascii_url)
    done = run_convertq("migrate", environment=given)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("convertq: the database convertq_ascii has the encoding SQL_ASCII, and convertq needs UTF8")
    done = run_convertq("doctor", environment=given)
    assert done.returncode == 1
    assert "bad   encoding        SQL_ASCII" in done.stdout
    with psycopg.connect(ascii_url) as conn:
        assert conn.execute("SELECT FROM pg_class WHERE relname = 'schema_migrations'").fetchall() == []


def test_the_session_of_a_worker_never_reads_with_a_foreign_zone(database_url: str, conn: Conn) -> None:
    job_id = insert_job(conn, created_at="2026-03-29 02:30:00+00")
    with connect(parse_database_url(f"{database_url}&options=-c%20timezone%3DEurope/Berlin"), "convertq:tests") as own:
        row = own.execute("SELECT created_at::text AS at FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert row == {"at": "2026-03-29 02:30:00+00"}


@pytest.mark.parametrize("way", ["statement", "pipeline"])
def test_a_value_that_cannot_be_loaded_is_told_apart_from_a_statement_that_failed(database_url: str, way: str) -> None:
    """The statement was executed, and the connection works on."""
    with open_database(database_url) as database:
        database.connection.execute("SET datestyle = 'German'")
        read: dict[str, Callable[[], object]] = {
            "statement": lambda: database.run("list_migrations"),
            "pipeline": lambda: database.pipeline.run(("list_migrations", {})),
        }
        with pytest.raises(UnreadableRow, match="DateStyle"):
            read[way]()
        database.connection.execute("SET datestyle = 'ISO'")
        assert database.run("list_migrations")
