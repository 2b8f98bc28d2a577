"""`convertq reclaim` about silent servers: judged by a witness, or by what the command hears."""

from __future__ import annotations

import pytest

from tests.conftest import Convertq, Environment
from tests.jobs import SERVER, Conn, claimed, expire_lease, one, register_witness, run, status_of
from tests.processes import Process
from tests.processes import run as run_convertq
from tests.waiting import eventually

TIMEOUT = {"WORKER_HEARTBEAT_TIMEOUT_SEC": 2, "WORKER_HEARTBEAT_SEC": 1}
WAITS = "1 server is silent; waiting 2 s to see whether it is alive\n"
LONG = {"WORKER_HEARTBEAT_TIMEOUT_SEC": 60}
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'convertq:cli' AND datname = current_database()"


def silence(conn: Conn) -> None:
    conn.execute("UPDATE servers SET last_heartbeat_at = now() - interval '1 h' WHERE id = %s", [SERVER])


def server_status(conn: Conn) -> str:
    return str(one(conn, "SELECT status FROM servers WHERE id = %s", SERVER)["status"])


def wait_until_it_listens(command: Process) -> None:
    eventually(lambda: "is silent; waiting 60 s" in command.tail(), what="the command listens")


def test_where_nobody_can_tell_the_command_listens_for_one_timeout_and_then_judges(
    conn: Conn, environment: Environment
) -> None:
    job = claimed(conn)
    silence(conn)
    done = run_convertq("reclaim", environment=environment(**TIMEOUT))
    assert (done.returncode, done.stdout, done.stderr) == (0, "reclaimed 1 job\n", WAITS)
    assert (server_status(conn), status_of(conn, job)) == ("dead", "queued")


def test_where_a_witness_is_there_the_command_does_not_wait(conn: Conn, environment: Environment) -> None:
    job = claimed(conn)
    silence(conn)
    register_witness(conn)
    done = run_convertq("reclaim", environment=environment(**TIMEOUT))
    assert (done.returncode, done.stdout, done.stderr) == (0, "reclaimed 1 job\n", "")
    assert status_of(conn, job) == "queued"


def test_expired_leases_and_the_jobs_of_dead_servers_do_not_wait(
    conn: Conn, convertq: Convertq, environment: Environment
) -> None:
    claimed(conn)
    expired, of_a_dead_one = claimed(conn), claimed(conn, "host:3:cccc/1")
    expire_lease(conn, expired)
    conn.execute("UPDATE servers SET status = 'dead' WHERE id = 'host:3:cccc'")
    silence(conn)
    command = convertq("reclaim", **LONG)
    wait_until_it_listens(command)
    assert {status_of(conn, expired), status_of(conn, of_a_dead_one)} == {"queued"}


def test_a_server_that_is_heard_while_the_command_listens_lives(conn: Conn, convertq: Convertq) -> None:
    job = claimed(conn)
    silence(conn)
    command = convertq("reclaim", **LONG)
    wait_until_it_listens(command)
    assert run(conn, "heartbeat_server", server=SERVER, concurrency=4, longest_gap=30, gateways=["default"])
    assert command.wait() == 0
    assert command.lines[-1] == "reclaimed 0 jobs"
    assert (server_status(conn), status_of(conn, job)) == ("active", "processing")


def test_a_connection_that_breaks_while_the_command_listens_ends_it(conn: Conn, convertq: Convertq) -> None:
    """What it could not hear is nobody's silence."""
    claimed(conn)
    silence(conn)
    command = convertq("reclaim", **LONG)
    wait_until_it_listens(command)
    for session in conn.execute(SESSIONS).fetchall():
        conn.execute("SELECT pg_terminate_backend(%s)", [session["pid"]])
    assert command.wait() == 69
    assert "database unreachable" in command.lines[-1]
    assert server_status(conn) == "active"


@pytest.mark.parametrize("status", ["active", "draining"])
def test_json_has_the_same_keys_after_listening(conn: Conn, environment: Environment, status: str) -> None:
    claimed(conn)
    conn.execute("UPDATE servers SET status = %s", [status])
    silence(conn)
    done = run_convertq("reclaim", "--json", environment=environment(**TIMEOUT))
    assert (done.stdout, done.stderr) == ('{"reclaimed": 1, "given_up": 0}\n', WAITS)
