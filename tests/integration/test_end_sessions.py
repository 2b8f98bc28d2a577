"""end_sessions: a process that connects again ends its old session, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from convertq.queue.database.reconnecting import ReconnectingDatabase
from convertq.queue.database.url import parse_database_url
from convertq.queue.log.lines import Log

from tests.jobs import Conn, claim, config, insert_job, one, queue, register_server, run, status_of
from tests.waiting import eventually

NAME = "convertq:host:1:aaaa/1"


@pytest.fixture
def open_session(database_url: str) -> Iterator[Any]:
    """`open_session("name")`: a session of this user with that application name."""
    with ExitStack() as opened:

        def open_session(name: str, **more: Any) -> psycopg.Connection[Any]:
            session = psycopg.connect(database_url, autocommit=True, application_name=name, **more)
            opened.callback(session.close)
            return session

        yield open_session


def is_there(conn: Conn, pid: int) -> bool:
    return bool(one(conn, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid)["count"])


def test_other_sessions_of_this_name_are_gone_when_it_returns(conn: Conn, open_session: Any) -> None:
    old = open_session(NAME)
    [row] = run(conn, "end_sessions", application_name=NAME, wait_ms=5000)
    assert row == {"pid": old.info.backend_pid, "is_gone": True}
    assert not is_there(conn, old.info.backend_pid)


def test_sessions_of_other_names_databases_and_users_stay(
    conn: Conn, open_session: Any, pg_server: Any, admin: psycopg.Connection
) -> None:
    role = f"other_{one(conn, 'SELECT pg_backend_pid() AS pid')['pid']}"
    admin.execute(f"CREATE ROLE {role} LOGIN".encode())
    others = [
        open_session(NAME + "1"), open_session("convertq:cli"),
        open_session(NAME, dbname=pg_server.maintenance_dbname), open_session(NAME, user=role),
    ]  # fmt: skip
    assert run(conn, "end_sessions", application_name=NAME, wait_ms=100) == []
    assert all(is_there(conn, session.info.backend_pid) for session in others)
    others[-1].close()
    admin.execute(f"DROP ROLE {role}".encode())


def test_a_link_that_connects_again_ends_the_session_that_it_lost(database_url: str, conn: Conn) -> None:
    """The client has closed its side, and the server has not noticed: it waits for a lock that somebody holds."""
    register_server(conn)
    job_id = insert_job(conn)
    database = ReconnectingDatabase(parse_database_url(database_url), Log(config()), lambda: NAME)
    old = database.open().connection
    pid = old.info.backend_pid
    old.execute("BEGIN")
    assert claim(old).id == job_id
    database.current = None
    database.open()
    assert not is_there(conn, pid)
    assert status_of(conn, job_id) == "queued"
    database.close()


def test_the_first_connection_ends_what_a_dead_predecessor_left(
    database_url: str, conn: Conn, open_session: Any
) -> None:
    old = open_session(NAME)
    database = ReconnectingDatabase(parse_database_url(database_url), Log(config()), lambda: NAME)
    assert queue(database.open().connection).requeue_worker_jobs("host:1:aaaa/1", counted=True, reason="x") == []
    eventually(lambda: not is_there(conn, old.info.backend_pid))
    database.close()
