"""Owns the promises of doctor's checks of sessions: who is idle in a transaction, and who keeps dead rows."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from convertq.worker.checks import sessions
from convertq.worker.checks.finding import Finding, Limits

from tests.conftest import Connect
from tests.findings import BAD, OK, WARN, LookAt, find, state_of
from tests.jobs import Conn
from tests.waiting import eventually


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
    [finding] = find(sessions.check_vacuum, look_at(replace(limits, long_transaction=300)))
    assert (finding.state, finding.what.endswith("nobody holds them for over 5 min")) == (WARN, True)
    reader.execute("ROLLBACK")
    [finding] = find(sessions.check_vacuum, look)
    assert (finding.state, "nobody holds them" in finding.what) == (WARN, True)


def test_autovacuum_switched_off_for_the_table_is_bad(look_at: LookAt, conn: Conn) -> None:
    conn.execute("ALTER TABLE jobs SET (autovacuum_enabled = false)")
    assert state_of(sessions.check_vacuum, look_at()) is BAD
