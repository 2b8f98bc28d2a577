"""`convertq servers`: who is registered, what each worker does, and what --prune may remove."""

from __future__ import annotations

import json
from typing import Any

from tests import jobs as make
from tests.conftest import Dirs, Environment, Supervisor
from tests.gateway_behaviours import silent
from tests.jobs import Conn
from tests.processes import run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

KEYS = {
    "id", "hostname", "pid", "version", "environment", "concurrency", "status", "started_at", "last_heartbeat_at",
    "stopped_at", "up_seconds", "heartbeat_seconds", "jobs",
}  # fmt: skip
JOB_KEYS = {"slot", "job_id", "attempt", "bytes", "seconds", "lease_seconds", "step", "percent"}


def servers(environment: Environment, *options: str) -> list[dict[str, Any]]:
    done = run("servers", "--json", *options, environment=environment())
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def screen(environment: Environment, *options: str) -> str:
    done = run("servers", *options, environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def registered(conn: Conn) -> set[str]:
    return {row["id"] for row in conn.execute("SELECT id FROM servers")}


def test_nobody_registered_is_said_with_the_remedy(environment: Environment) -> None:
    assert "convertq worker run" in screen(environment)
    assert servers(environment) == []


def test_a_running_supervisor_shows_the_job_in_its_workers_hand(
    conn: Conn, dirs: Dirs, environment: Environment, supervisor: Supervisor, gateway: StandInGateway
) -> None:
    gateway.script(silent())
    process = supervisor(WORKER_CONCURRENCY=2)
    job = make.queued_job(conn, dirs)
    process.wait_for_event("claim")
    [server] = servers(environment)
    assert server.keys() == KEYS
    assert (server["pid"], server["concurrency"], server["status"]) == (process.pid, 2, "active")
    [doing] = server["jobs"]
    assert doing.keys() == JOB_KEYS
    assert (doing["job_id"], doing["attempt"]) == (str(job), 1)
    assert doing["slot"] in ("1", "2")
    assert str(job) in screen(environment)


def test_those_at_work_come_first_and_a_silent_one_is_dead(conn: Conn, environment: Environment) -> None:
    make.register_server(conn, "stopped:1:a", status="stopped", stopped_at="now")
    make.register_server(conn, "silent:1:a", last_heartbeat_at="yesterday")
    make.register_server(conn, "draining:1:a", status="draining")
    make.register_server(conn, "active:1:a")
    assert [(server["id"].partition(":")[0], server["status"]) for server in servers(environment)] == [
        ("active", "active"), ("draining", "draining"), ("silent", "dead"), ("stopped", "stopped"),
    ]  # fmt: skip


def test_a_job_of_a_server_that_is_not_registered_is_shown_too(conn: Conn, environment: Environment) -> None:
    job = make.insert_job(conn, "processing", leased_by="gone:1:a/3")
    [server] = servers(environment)
    assert (server["id"], server["status"]) == ("gone:1:a", "unregistered")
    assert server.keys() == KEYS
    assert [doing["job_id"] for doing in server["jobs"]] == [str(job)]
    assert "unregistered" in screen(environment)


def test_progress_and_a_lease_that_ran_out_are_seen(conn: Conn, environment: Environment) -> None:
    job = make.claimed(conn)
    make.queue(conn).report_progress(job, "converting", 45, 9, 20)
    assert "converting 45%" in screen(environment)
    make.expire_lease(conn, job)
    assert "its lease has expired" in screen(environment)


def test_names_from_outside_cannot_move_the_cursor(conn: Conn, environment: Environment) -> None:
    make.register_server(conn, "a\x1b[2J\nb:1:a", environment="x\ty")
    text = screen(environment)
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2


def test_prune_removes_the_stopped_and_the_dead_and_says_how_many(conn: Conn, environment: Environment) -> None:
    make.register_server(conn, "active:1:a")
    make.register_server(conn, "draining:1:a", status="draining")
    make.register_server(conn, "stopped:1:a", status="stopped", stopped_at="yesterday")
    make.register_server(conn, "dead:1:a", status="dead", stopped_at="yesterday")
    make.register_server(conn, "now:1:a", status="stopped", stopped_at="now")
    text = screen(environment, "--prune")
    assert text.splitlines()[0] == "removed 2 servers"
    assert text.splitlines()[1].startswith("kept 1 server ")
    assert registered(conn) == {"active:1:a", "draining:1:a", "now:1:a"}
    assert servers(environment, "--prune") == [{"pruned": 0, "kept": 1}]


def test_a_server_is_never_pruned_while_a_job_is_leased_by_it(conn: Conn, environment: Environment) -> None:
    """Its row is how the job is found: without it only the end of the lease would free the job."""
    make.register_server(conn, "dead:1:a", status="dead", stopped_at="yesterday")
    make.register_server(conn, "dead:1:ab", status="dead", stopped_at="yesterday")
    make.insert_job(conn, "processing", leased_by="dead:1:a/1")
    assert servers(environment, "--prune") == [{"pruned": 1, "kept": 1}]
    assert registered(conn) == {"dead:1:a"}
    make.queue(conn).reclaim_jobs()
    assert servers(environment, "--prune") == [{"pruned": 1, "kept": 0}]


def test_a_stopped_supervisor_says_so(environment: Environment, supervisor: Supervisor) -> None:
    process = supervisor()
    assert process.stop() == 0
    eventually(lambda: [server["status"] for server in servers(environment)] == ["stopped"])
