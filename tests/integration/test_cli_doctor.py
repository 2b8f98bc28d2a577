"""Owns the promises of `convertq doctor`: each check seen both ways, what --fix mends, a look that changes nothing."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from convertq.cli.embedded import FAST, EmbeddedPostgres
from convertq.worker.checks import host, plans, queue, server, sessions
from convertq.worker.checks.finding import Finding, Limits, Look, State
from convertq.worker.config import read_config
from convertq.worker.db import Database, connect
from convertq.worker.doctor import Check, ask, carry_out
from convertq.worker.files import Files

from tests.conftest import Connect, Dirs, Environment, migrate
from tests.gateway_behaviours import status
from tests.jobs import (
    HOLDER,
    Conn,
    claimed,
    everything,
    expire_lease,
    insert_job,
    one,
    queued_job,
    register_server,
    set_breaker,
    status_of,
)
from tests.processes import run as run_convertq
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

LookAt = Callable[..., Look]
OK, WARN, BAD = State.OK, State.WARN, State.BAD


@pytest.fixture
def look_at(environment: Environment) -> Iterator[LookAt]:
    """`look_at(limits=Limits(…), WORKER_CONCURRENCY=9)`: what a check is given, with a connection of convertq's own."""
    with ExitStack() as opened:

        def look_at(limits: Limits | None = None, **settings: object) -> Look:
            config = read_config(environment(**settings))
            database = Database(connect(config.database, "convertq:doctor"), config.database.schema)
            opened.callback(database.close)
            look = Look(config, Files(config.uploads_dir, config.results_dir), database, limits=limits or Limits())
            ask(look)
            return look

        yield look_at


def find(check: Check, look: Look, *, fix: bool = False) -> list[Finding]:
    return list(carry_out((check,), look, fix=fix))


def state_of(check: Check, look: Look) -> State:
    [finding] = find(check, look)
    assert finding.state is OK or finding.remedy
    return finding.state


def doctor(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the last finding of each check."""
    done = run_convertq("doctor", "--json", *arguments, environment=environment)
    assert "Traceback" not in done.stderr
    return done.returncode, {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}


# -- the whole --


def test_everything_is_ok_where_everything_is_and_the_exit_code_is_0(environment: Environment) -> None:
    with EmbeddedPostgres(settings={**FAST, "autovacuum": "on"}) as postgres:
        migrate(postgres.url())
        code, found = doctor(environment(DATABASE_URL=postgres.url()))
    assert {name: line["what"] for name, line in found.items() if line["state"] != "ok"} == {}
    assert code == 0
    assert list(found) == [
        "configuration", "heartbeat", "directories", "disk", "descriptors", "gateway", "database", "version", "clock",
        "pooler", "connections", "autovacuum", "idle sessions", "schema", "vacuum", "plans", "leases", "servers",
        "breaker", "queue", "sources", "results",
    ]  # fmt: skip


def test_one_bad_thing_makes_the_exit_code_1_and_its_line_has_the_remedy(environment: Environment) -> None:
    done = run_convertq("doctor", environment=environment(GATEWAY_URL="http://user:secret@127.0.0.1:9"))
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("bad   gateway"))
    assert lines[at].endswith("no answer from 127.0.0.1:9: it cannot be reached")
    assert lines[at + 1].strip() == "-> check GATEWAY_URL, and that the gateway runs"
    bad = sum(line.startswith("bad") for line in lines)  # the tests' own server has no autovacuum, another may have
    assert lines[-1] == f"23 checks: {23 - bad} ok, 0 warnings, {bad} bad"
    assert "secret" not in done.stdout + done.stderr
    assert done.returncode == 1


def test_every_wrong_setting_is_said_and_the_rest_is_looked_at_all_the_same(environment: Environment) -> None:
    given = environment(WORKER_CONCURRENCY="many", LOG_LEVEL="loud", WORKER_LEASE_EXTEND_SEC=500)
    done = run_convertq("doctor", "--json", environment=given)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    said = " ".join(line["what"] for line in found if line["check"] == "configuration" and line["state"] == "bad")
    assert all(name in said for name in ("WORKER_CONCURRENCY", "LOG_LEVEL", "WORKER_LEASE_EXTEND_SEC"))
    assert [line["state"] for line in found if line["check"] == "schema"] == ["ok"]
    assert done.returncode == 1


def test_without_a_database_the_host_is_looked_at_all_the_same(environment: Environment) -> None:
    code, found = doctor(environment(DATABASE_URL="postgresql://u:secret@127.0.0.1:9/x"))
    assert (code, found["database"]["state"], found["gateway"]["state"]) == (1, "bad", "ok")
    assert "secret" not in str(found)
    code, found = doctor(environment(DATABASE_URL=None))
    assert (code, list(found)) == (1, ["configuration"])


def test_looking_changes_nothing(conn: Conn, dirs: Dirs, environment: Environment) -> None:
    expire_lease(conn, claimed(conn))
    queued_job(conn, dirs)
    before = everything(conn)
    doctor(environment())
    assert everything(conn) == before


# -- this host --


def test_heartbeat(look_at: LookAt) -> None:
    assert state_of(host.check_heartbeat, look_at()) is OK
    assert state_of(host.check_heartbeat, look_at(WORKER_HEARTBEAT_TIMEOUT_SEC=10)) is WARN


def test_directories_are_made_by_fix(look_at: LookAt, tmp_path: Path) -> None:
    assert [finding.state for finding in find(host.check_directories, look_at())] == [OK, OK]
    look = look_at(RESULTS_DIR=tmp_path / "new" / "results")
    assert [finding.state for finding in find(host.check_directories, look)] == [OK, BAD]
    mended = find(host.check_directories, look, fix=True)
    assert [(finding.state, finding.fixed) for finding in mended] == [(OK, "made the directory")] * 2
    assert (tmp_path / "new" / "results").is_dir()


def test_a_file_in_the_place_of_a_directory_is_bad_and_fix_says_that_it_stays_so(look_at: LookAt, dirs: Dirs) -> None:
    (dirs.uploads / "file").write_text("")
    look = look_at(UPLOADS_DIR=dirs.uploads / "file", RESULTS_DIR=dirs.uploads / "file" / "below")
    found = find(host.check_directories, look, fix=True)
    assert [finding.state for finding in found] == [BAD, BAD]
    assert found[1].fixed.startswith("could not: ")


def test_disk(look_at: LookAt, dirs: Dirs) -> None:
    assert state_of(host.check_disk, look_at(RESULTS_MIN_FREE_MB=1)) is OK
    assert state_of(host.check_disk, look_at(RESULTS_MIN_FREE_MB=2**31 - 1)) is BAD
    assert state_of(host.check_disk, look_at(RESULTS_DIR="/nowhere")) is BAD


def test_descriptors(look_at: LookAt) -> None:
    look = look_at(WORKER_CONCURRENCY=100)
    assert state_of(host.check_descriptors, look) is OK
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        assert state_of(host.check_descriptors, look) is BAD
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_gateway(look_at: LookAt, gateway: StandInGateway) -> None:
    assert state_of(host.check_gateway, look_at()) is OK
    assert state_of(host.check_gateway, look_at(GATEWAY_URL=None)) is WARN
    gateway.health = status(404)
    [finding] = find(host.check_gateway, look_at())
    assert (finding.state, finding.what) == (OK, "it answers, but has no /health (404): counts as healthy")
    gateway.health = status(503)
    assert state_of(host.check_gateway, look_at()) is BAD
    gateway.stop()
    assert state_of(host.check_gateway, look_at()) is BAD


# -- the server --


def test_database(look_at: LookAt) -> None:
    look = look_at()
    assert state_of(server.check_database, replace(look, limits=Limits(latency=60))) is OK
    assert state_of(server.check_database, replace(look, limits=Limits(latency=0))) is WARN
    assert state_of(server.check_database, replace(look, server={**look.server, "is_standby": True})) is BAD


def test_version(look_at: LookAt) -> None:
    look = look_at()
    assert state_of(server.check_version, look) is OK
    assert state_of(server.check_version, replace(look, server={**look.server, "version_number": 140012})) is BAD


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DELETE FROM schema_migrations WHERE version > 2", "public is at version 2; version"),
        ("UPDATE schema_migrations SET checksum = 'x' WHERE version = 2", "is not the one that was applied"),
        ("INSERT INTO schema_migrations (version, name, checksum) VALUES (99, 'x', 'x')", "newer than this convertq"),
    ],
)
def test_schema(look_at: LookAt, conn: Conn, change: Any, words: str) -> None:
    assert state_of(server.check_schema, look_at()) is OK
    conn.execute(change)
    [finding] = find(server.check_schema, look_at())
    assert finding.state is BAD
    assert words in finding.what


def test_without_its_tables_the_remedy_is_migrate_and_no_table_is_asked(
    environment: Environment, database_url: str
) -> None:
    code, found = doctor(environment(DATABASE_URL=f"{database_url}&schema=empty"))
    assert (code, found["schema"]["remedy"], list(found)[-1]) == (1, "convertq migrate", "schema")
    assert "has no convertq tables" in found["schema"]["what"]


def test_clock(look_at: LookAt) -> None:
    look = look_at()
    assert state_of(server.check_clock, look) is OK
    look.clock = lambda: time.time() - 60
    ask(look)
    [finding] = find(server.check_clock, look)
    assert (finding.state, finding.what) == (WARN, "this host is 60 s behind the database")


def test_pooler(look_at: LookAt, database_url: str) -> None:
    assert state_of(server.check_pooler, look_at()) is OK
    assert state_of(server.check_pooler, look_at(DATABASE_URL=f"{database_url}&pgbouncer=true")) is WARN


def test_connections(look_at: LookAt, environment: Environment) -> None:
    assert state_of(server.check_connections, look_at()) is OK
    assert state_of(server.check_connections, look_at(WORKER_CONCURRENCY=1000)) is WARN
    few = {**FAST, "max_connections": "5", "superuser_reserved_connections": "3", "max_wal_senders": "0"}
    with EmbeddedPostgres(settings=few) as postgres:
        migrate(postgres.url())
        code, found = doctor(environment(DATABASE_URL=postgres.url()))
    assert (code, found["connections"]["state"]) == (1, "bad")
    assert found["connections"]["what"] == "1 of 2 connections are free, convertq has 1"


def test_autovacuum(look_at: LookAt) -> None:
    look = look_at()
    assert state_of(server.check_autovacuum, replace(look, server={**look.server, "autovacuum": True})) is OK
    assert state_of(server.check_autovacuum, replace(look, server={**look.server, "autovacuum": False})) is BAD


# -- sessions --


def test_fix_ends_convertqs_own_idle_transactions_and_nobody_elses(
    look_at: LookAt, connect: Connect, conn: Conn
) -> None:
    assert state_of(sessions.check_idle_sessions, look_at()) is OK
    ours, theirs = connect(), connect()
    ours.execute("SET application_name = 'convertq:host:1:aaaa/1'")
    theirs.execute("SET application_name = 'report'")
    for session in (ours, theirs):
        session.execute("BEGIN")
        session.execute("SELECT FROM jobs")
    assert state_of(sessions.check_idle_sessions, look_at()) is OK  # not for five minutes yet
    look = look_at(limits=Limits(idle_transaction=0))
    found = find(sessions.check_idle_sessions, look)
    assert [(finding.state, finding.fix is not None) for finding in found] == [(BAD, True), (BAD, False)]
    assert "(convertq:host:1:aaaa/1)" in found[0].what

    [left] = eventually(lambda: only_one(find(sessions.check_idle_sessions, look, fix=True)))
    assert (left.state, "(report)" in left.what) == (BAD, True)
    with pytest.raises(psycopg.OperationalError):
        ours.execute("SELECT")
    theirs.execute("ROLLBACK")
    assert state_of(sessions.check_idle_sessions, look) is OK


def only_one(findings: list[Finding]) -> list[Finding]:
    """A session that is told to end takes a moment."""
    return findings if len(findings) == 1 else []


def test_dead_rows_are_bad_with_the_session_that_keeps_them(look_at: LookAt, conn: Conn, connect: Connect) -> None:
    limits = Limits(dead_rows=100, long_transaction=0)
    assert state_of(sessions.check_vacuum, look_at(limits)) is OK
    conn.execute("INSERT INTO jobs (bytes, sha256) SELECT 1, md5(n::text) FROM generate_series(1, 1000) n")
    reader = connect()
    reader.execute("SET application_name = 'nightly report'")
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM jobs")
    assert state_of(sessions.check_vacuum, look_at(replace(limits, dead_rows=10**6))) is WARN
    conn.execute("UPDATE jobs SET priority = 1")
    conn.execute("SELECT pg_stat_force_next_flush()")
    look = look_at(limits)
    [finding] = eventually(lambda: [each for each in find(sessions.check_vacuum, look) if each.state is BAD])
    assert f"kept by pid {reader.info.backend_pid} (nightly report)" in finding.what
    assert "idle in transaction: SELECT count(*) FROM jobs" in finding.what
    assert finding.remedy == f"end it: SELECT pg_terminate_backend({reader.info.backend_pid})"
    reader.execute("ROLLBACK")
    [finding] = find(sessions.check_vacuum, look)
    assert (finding.state, "nobody holds them" in finding.what) == (WARN, True)


def test_autovacuum_switched_off_for_the_table_is_bad(look_at: LookAt, conn: Conn) -> None:
    conn.execute("ALTER TABLE jobs SET (autovacuum_enabled = false)")
    assert state_of(sessions.check_vacuum, look_at()) is BAD


# -- plans --


def test_plans(look_at: LookAt, conn: Conn) -> None:
    assert state_of(plans.check_plans, look_at()) is OK
    conn.execute("SET session_replication_role = replica")
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, queued_at) SELECT 1, md5(n::text), 'queued', now()"
        " FROM generate_series(1, 20000) n"
    )
    conn.execute("ANALYZE jobs")
    [finding] = find(plans.check_plans, look_at())
    assert (finding.state, finding.what) == (OK, "5 hot statements use their indexes on 20000 rows")
    conn.execute("DROP INDEX jobs_claimable")
    [finding] = find(plans.check_plans, look_at())
    assert (finding.state, finding.what) == (BAD, "claim_job reads the whole of jobs (20000 rows)")


# -- the queue --


def test_leases_that_ran_out_are_given_back_by_fix(look_at: LookAt, conn: Conn) -> None:
    job = claimed(conn)
    assert state_of(queue.check_leases, look_at()) is OK
    expire_lease(conn, job)
    assert state_of(queue.check_leases, look_at()) is BAD
    [finding] = find(queue.check_leases, look_at(), fix=True)
    assert (finding.state, finding.fixed) == (OK, "reclaimed 1")
    assert status_of(conn, job) == "queued"


def test_a_queue_that_stands_still(look_at: LookAt, conn: Conn) -> None:
    assert state_of(queue.check_queue, look_at()) is OK
    insert_job(conn)
    [finding] = find(queue.check_queue, look_at())
    assert (finding.state, finding.what) == (BAD, "1 queued, and no server is active")
    register_server(conn)
    assert state_of(queue.check_queue, look_at()) is OK
    conn.execute("UPDATE jobs SET queued_at = now() - interval '11 min'")
    [finding] = find(queue.check_queue, look_at())
    assert (finding.state, finding.what) == (BAD, "1 queued; the first waits for 11 min, and no worker claims")
    set_breaker(conn, "open")
    assert state_of(queue.check_queue, look_at()) is OK  # the breaker's own line says it
    set_breaker(conn, "closed")
    claimed(conn)
    assert state_of(queue.check_queue, look_at()) is WARN  # a backlog


def test_servers_that_are_silent_are_buried_by_fix(look_at: LookAt, conn: Conn) -> None:
    register_server(conn)
    assert state_of(queue.check_servers, look_at()) is OK
    conn.execute("UPDATE servers SET last_heartbeat_at = now() - interval '1 hour'")
    assert state_of(queue.check_servers, look_at()) is BAD
    [finding] = find(queue.check_servers, look_at(), fix=True)
    assert (finding.state, finding.what) == (WARN, "0 active, 1 died within a day")


def test_breaker(look_at: LookAt, conn: Conn) -> None:
    assert state_of(queue.check_breaker, look_at()) is OK
    set_breaker(conn, "open")
    assert state_of(queue.check_breaker, look_at()) is BAD
    set_breaker(conn, "half_open", probe_by=HOLDER)
    assert state_of(queue.check_breaker, look_at()) is BAD
    set_breaker(conn, "open", by_hand=True)
    [finding] = find(queue.check_breaker, look_at())
    assert (finding.state, finding.remedy) == (WARN, "convertq breaker close")


def test_sources(look_at: LookAt, conn: Conn, dirs: Dirs) -> None:
    queued_job(conn, dirs)
    assert state_of(queue.check_sources, look_at()) is OK
    job_id = insert_job(conn)
    [finding] = find(queue.check_sources, look_at())
    assert (finding.state, finding.what) == (BAD, f"1 queued without a source, such as {job_id}")


def test_results(look_at: LookAt, conn: Conn, dirs: Dirs) -> None:
    job_id = uuid4()
    (dirs.results / f"{job_id}.xml").write_text("<x/>")
    insert_job(conn, "complete", id=job_id, result_path="x")
    insert_job(conn, "complete")  # expired
    assert state_of(queue.check_results, look_at()) is OK
    insert_job(conn, "complete", result_path="x")
    assert state_of(queue.check_results, look_at()) is BAD


def test_a_check_that_the_database_refuses_is_bad_and_the_others_go_on(conn: Conn, environment: Environment) -> None:
    conn.execute("DROP TABLE circuit_breaker")
    code, found = doctor(environment())
    assert (code, found["breaker"]["state"], found["sources"]["state"]) == (1, "bad", "ok")
    assert 'relation "public.circuit_breaker" does not exist' in found["breaker"]["what"]
    assert one(conn, "SELECT count(*) AS jobs FROM jobs")["jobs"] == 0
