"""The servers' rows: registered once, heard from, drained, stopped, never back from the dead."""

from __future__ import annotations

import psycopg
import pytest

from tests.jobs import REGISTRATION, SERVER, Conn, one, register_server, run


def row(conn: Conn) -> dict[str, object]:
    return one(conn, "SELECT * FROM servers WHERE id = %s", SERVER)


def old(conn: Conn) -> None:
    conn.execute("UPDATE servers SET last_heartbeat_at = '2020-01-01'")


def is_fresh(conn: Conn) -> bool:
    return bool(one(conn, "SELECT last_heartbeat_at > now() - interval '1 min' AS fresh FROM servers")["fresh"])


def test_a_new_server_is_active_and_heard(conn: Conn) -> None:
    register_server(conn)
    found = row(conn)
    assert (found["status"], found["hostname"], found["pid"], found["version"], found["environment"]) == (
        "active", "host", 1, "1", "test",
    )  # fmt: skip
    assert found["stopped_at"] is None
    assert is_fresh(conn)


@pytest.mark.parametrize("status", ["draining", "stopped", "dead"])
def test_a_name_is_never_used_again(conn: Conn, status: str) -> None:
    register_server(conn, status=status)
    assert run(conn, "register_server", **REGISTRATION) == []
    assert row(conn)["status"] == status


def test_a_registration_whose_commit_was_not_answered_can_be_repeated(conn: Conn) -> None:
    assert run(conn, "register_server", **REGISTRATION)
    old(conn)
    assert run(conn, "register_server", **REGISTRATION)
    assert is_fresh(conn)


@pytest.mark.parametrize(
    ("status", "heard"), [("active", True), ("draining", True), ("stopped", False), ("dead", False)]
)
def test_a_heartbeat_is_only_for_the_living(conn: Conn, status: str, heard: bool) -> None:
    register_server(conn, status=status)
    old(conn)
    assert (
        bool(run(conn, "heartbeat_server", server=SERVER, concurrency=4, longest_gap=20, gateways=["default"])) is heard
    )
    assert is_fresh(conn) is heard
    assert row(conn)["status"] == status


@pytest.mark.parametrize(("silent_for", "is_a_gap"), [(19, False), (21, True)])
def test_a_gap_between_heartbeats_is_remembered(conn: Conn, silent_for: int, is_a_gap: bool) -> None:
    register_server(conn, heard_since="2020-01-01")
    conn.execute("UPDATE servers SET last_heartbeat_at = now() - make_interval(secs => %s)", [silent_for])
    run(conn, "heartbeat_server", server=SERVER, concurrency=4, longest_gap=20, gateways=["default"])
    found = one(conn, "SELECT heard_since = last_heartbeat_at AS since_now FROM servers")
    assert found["since_now"] is is_a_gap


@pytest.mark.parametrize(("status", "after"), [("active", "draining"), ("stopped", "stopped"), ("dead", "dead")])
def test_only_an_active_server_drains(conn: Conn, status: str, after: str) -> None:
    register_server(conn, status=status)
    assert bool(run(conn, "drain_server", server=SERVER)) is (status == "active")
    assert row(conn)["status"] == after


@pytest.mark.parametrize("status", ["active", "draining", "dead"])
def test_a_server_that_ends_says_so(conn: Conn, status: str) -> None:
    register_server(conn, status=status)
    assert run(conn, "stop_server", server=SERVER)
    assert row(conn)["status"] == "stopped"
    assert row(conn)["stopped_at"] is not None


def test_stopping_twice_is_stopping_once(conn: Conn) -> None:
    register_server(conn)
    run(conn, "stop_server", server=SERVER)
    before = row(conn)
    assert run(conn, "stop_server", server=SERVER) == []
    assert row(conn) == before


@pytest.mark.parametrize(
    ("statement", "more"),
    [
        ("heartbeat_server", {"concurrency": 4, "longest_gap": 20, "gateways": []}),
        ("drain_server", {}),
        ("stop_server", {}),
    ],
)
def test_a_server_that_was_never_registered_changes_nothing(
    conn: Conn, statement: str, more: dict[str, object]
) -> None:
    register_server(conn)
    before = row(conn)
    assert run(conn, statement, server="host:9:zzzz", **more) == []
    assert row(conn) == before


def test_an_unknown_status_is_refused(conn: Conn) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        register_server(conn, status="asleep")
