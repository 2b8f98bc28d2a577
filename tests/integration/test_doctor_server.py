"""doctor's checks of the database server, each seen both ways."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from convertq.embedded.postgres import FAST, EmbeddedPostgres
from convertq.queue.doctor import server
from convertq.queue.doctor.examination import inspect_server
from convertq.queue.doctor.finding import Limits

from tests.conftest import Environment, migrate
from tests.findings import BAD, OK, WARN, MakeContext, doctor, find, state_of
from tests.jobs import Conn
from tests.processes import run as run_convertq
from tests.standby import Standby
from tests.waiting import eventually


def test_database(make_context: MakeContext) -> None:
    context = make_context()
    assert state_of(server.check_database, replace(context, limits=Limits(latency_seconds=60))) is OK
    assert state_of(server.check_database, replace(context, limits=Limits(latency_seconds=0))) is WARN


def test_a_standby_is_bad_and_the_rest_is_looked_at_all_the_same(
    own_postgres: EmbeddedPostgres, environment: Environment
) -> None:
    with Standby(own_postgres) as standby:
        code, found = doctor(environment(DATABASE_URL=standby.url()))
    assert (code, found["database"]["state"], found["database"]["remedy"]) == (
        1,
        "bad",
        "name the primary in DATABASE_URL",
    )
    assert found["database"]["what"].endswith("but it is a standby")
    assert list(found)[-1] == "results"
    assert {name: line["what"] for name, line in found.items() if "could not be checked" in line["what"]} == {}


def test_version(make_context: MakeContext) -> None:
    context = make_context()
    assert state_of(server.check_version, context) is OK
    assert state_of(server.check_version, replace(context, server={**context.server, "version_number": 140012})) is BAD


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DELETE FROM schema_migrations WHERE version > 2", "public is at version 2; version"),
        ("UPDATE schema_migrations SET checksum = 'x' WHERE version = 2", "is not the one that was applied"),
        ("INSERT INTO schema_migrations (version, name, checksum) VALUES (99, 'x', 'x')", "newer than this convertq"),
    ],
)
def test_schema(make_context: MakeContext, conn: Conn, change: Any, words: str) -> None:
    assert state_of(server.check_schema, make_context()) is OK
    conn.execute(change)
    [finding] = find(server.check_schema, make_context())
    assert finding.state is BAD
    assert words in finding.what


def test_clock(make_context: MakeContext) -> None:
    context = make_context()
    assert state_of(server.check_clock, context) is OK
    context.clock = lambda: time.time() - 60
    inspect_server(context)
    [finding] = find(server.check_clock, context)
    assert (finding.state, finding.what) == (WARN, "this host is 60 s behind the database")


def test_pooler(make_context: MakeContext, database_url: str) -> None:
    assert state_of(server.check_pooler, make_context()) is OK
    pooled = f"{database_url}&pgbouncer=true"
    assert state_of(server.check_pooler, make_context(DATABASE_URL=pooled)) is WARN
    both = make_context(DATABASE_URL=pooled, DATABASE_DIRECT_URL=database_url)
    assert state_of(server.check_pooler, both) is OK


def test_connections(make_context: MakeContext, environment: Environment) -> None:
    assert state_of(server.check_connections, make_context()) is OK
    assert state_of(server.check_connections, make_context(WORKER_CONCURRENCY=1000)) is WARN
    few = {**FAST, "max_connections": "5", "superuser_reserved_connections": "3", "max_wal_senders": "0"}
    with EmbeddedPostgres(settings=few) as postgres:
        migrate(postgres.url())
        code, found = doctor(environment(DATABASE_URL=postgres.url()))
        assert (code, found["connections"]["state"]) == (1, "bad")
        assert found["connections"]["what"] == "1 of 2 connections are free, convertq has 1"
        url = f"{postgres.url()}&application_name=reports"
        with psycopg.connect(url), psycopg.connect(url):
            _, found = doctor(environment(DATABASE_URL=postgres.url()))
    assert found["connections"]["what"] == "0 of 2 connections are free, convertq has 1, reports has 2"


FULL = {**FAST, "max_connections": "4", "superuser_reserved_connections": "1", "max_wal_senders": "0"}


@pytest.mark.parametrize(
    ("taken", "limit", "words"),
    [
        (3, "", "remaining connection slots are reserved"),
        (4, "", "sorry, too many clients already"),
        (1, "ALTER ROLE plain CONNECTION LIMIT 0", 'too many connections for role "plain"'),
        (1, "ALTER DATABASE postgres CONNECTION LIMIT 1", 'too many connections for database "postgres"'),
    ],
)
def test_a_database_that_has_no_connection_left_is_not_said_to_be_away(
    environment: Environment, taken: int, limit: Any, words: str
) -> None:
    with EmbeddedPostgres(settings=FULL, port=0) as postgres, ExitStack() as opened:
        first = opened.enter_context(psycopg.connect(postgres.url(), autocommit=True))
        first.execute("CREATE ROLE plain LOGIN")
        if limit:
            first.execute(limit)
        for _ in range(taken - 1):
            opened.enter_context(psycopg.connect(postgres.url()))
        given = environment(DATABASE_URL=postgres.url().replace("postgres@", "plain@"))
        code, found = doctor(given)
        listed = run_convertq("list", environment=given)
    assert (code, found["database"]["state"], words in found["database"]["what"]) == (1, "bad", True)
    raised = "that limit" if limit else "max_connections"
    assert found["database"]["remedy"] == f"end what is not needed, raise {raised}, or lower WORKER_CONCURRENCY"
    assert (listed.returncode, words in listed.stderr) == (69, True)
    where = f"127.0.0.1:{postgres.port}/postgres"
    assert listed.stderr.startswith(f"convertq: the database at {where} has no connection left: connection failed: ")


def test_autovacuum(environment: Environment) -> None:
    with EmbeddedPostgres(settings={"fsync": "off"}) as postgres:
        given = environment(DATABASE_URL=postgres.url())
        assert doctor(given)[1]["autovacuum"]["state"] == "ok"
        with psycopg.connect(postgres.url(), autocommit=True) as conn:
            conn.execute("ALTER SYSTEM SET autovacuum = off")
            conn.execute("SELECT pg_reload_conf()")
            eventually(lambda: conn.execute("SHOW autovacuum").fetchone() == ("off",))
        code, found = doctor(given)
    assert (code, found["autovacuum"]["state"], found["autovacuum"]["remedy"]) == (1, "bad", "set autovacuum = on")
