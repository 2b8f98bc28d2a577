"""`convertq doctor` as a command: the whole look, its exit code, and that it changes nothing."""

from __future__ import annotations

import json

from convertq.embedded.postgres import FAST, EmbeddedPostgres

from tests.conftest import Dirs, Environment, migrate
from tests.findings import doctor
from tests.jobs import Conn, claimed, everything, expire_lease, one, queued_job
from tests.processes import run as run_convertq


def test_everything_is_ok_where_everything_is_and_the_exit_code_is_0(environment: Environment) -> None:
    with EmbeddedPostgres(settings={**FAST, "autovacuum": "on"}) as postgres:
        migrate(postgres.url())
        code, found = doctor(environment(DATABASE_URL=postgres.url()))
    assert {name: line["what"] for name, line in found.items() if line["state"] != "ok"} == {}
    assert code == 0
    assert list(found) == [
        "configuration", "heartbeat", "directories", "disk", "descriptors", "gateway", "database", "version",
        "encoding", "clock", "pooler", "replication", "connections", "autovacuum", "idle sessions", "schema", "vacuum",
        "plans", "leases", "servers", "breaker", "routes", "owners", "pauses", "queue", "history", "sources", "results",
    ]  # fmt: skip


def test_one_bad_thing_makes_the_exit_code_1_and_its_line_has_the_remedy(environment: Environment) -> None:
    done = run_convertq("doctor", environment=environment(GATEWAY_URL="http://user:secret@127.0.0.1:9"))
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("bad   gateway"))
    assert lines[at].endswith("no answer from 127.0.0.1:9: it cannot be reached")
    assert lines[at + 1].strip() == "-> check GATEWAY_URL, and that the gateway runs"
    bad = sum(line.startswith("bad") for line in lines)  # the tests' own server has no autovacuum, another may have
    assert lines[-1] == f"29 checks: {29 - bad} ok, 0 warnings, {bad} bad"
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


def test_a_check_that_the_database_refuses_is_bad_and_the_others_go_on(conn: Conn, environment: Environment) -> None:
    conn.execute("DROP TABLE circuit_breaker")
    code, found = doctor(environment())
    assert (code, found["breaker"]["state"], found["sources"]["state"]) == (1, "bad", "ok")
    assert 'relation "public.circuit_breaker" does not exist' in found["breaker"]["what"]
    assert one(conn, "SELECT count(*) AS jobs FROM jobs")["jobs"] == 0


def test_without_its_tables_the_remedy_is_migrate_and_no_table_is_asked(
    environment: Environment, database_url: str
) -> None:
    code, found = doctor(environment(DATABASE_URL=f"{database_url}&schema=empty"))
    assert (code, found["schema"]["remedy"], list(found)[-1]) == (1, "convertq migrate", "schema")
    assert "has no convertq tables" in found["schema"]["what"]
