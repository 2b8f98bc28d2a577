"""doctor's checks of sessions: who is idle in a transaction, and who keeps dead rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psycopg
import pytest
from convertq.queue.doctor import sessions
from convertq.queue.doctor.examination import inspect_server
from convertq.queue.doctor.finding import Finding, Limits
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.conftest import Connect, Server
from tests.findings import BAD, OK, WARN, MakeContext, find, state_of
from tests.jobs import Conn
from tests.waiting import eventually


@dataclass(frozen=True)
class Plain:
    """A role that may not look into the sessions of others."""

    name: str
    url: str

    @property
    def remedy(self) -> str:
        return f'let this role look: GRANT pg_read_all_stats TO "{self.name}"'


@pytest.fixture
def plain(pg_server: Server, database_url: str, admin: psycopg.Connection) -> Iterator[Plain]:
    if pg_server.password:
        pytest.skip("the server asks for passwords")
    name = f"Plain {os.urandom(4).hex()}"
    admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    yield Plain(name, Server(pg_server.host, pg_server.port, name).url(str(conninfo_to_dict(database_url)["dbname"])))
    admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_fix_ends_convertqs_own_idle_transactions_and_nobody_elses(
    make_context: MakeContext, connect: Connect, conn: Conn
) -> None:
    assert state_of(sessions.check_idle_sessions, make_context()) is OK
    ours, theirs = connect(), connect()
    ours.execute("SET application_name = 'convertq:host:1:aaaa/1'")
    theirs.execute("SET application_name = 'report'")
    for session in (ours, theirs):
        session.execute("BEGIN")
        session.execute("SELECT FROM jobs")
    assert state_of(sessions.check_idle_sessions, make_context()) is OK  # not for five minutes yet
    context = make_context(limits=Limits(idle_transaction_seconds=0))
    found = find(sessions.check_idle_sessions, context)
    assert [(finding.state, finding.fix is not None) for finding in found] == [(BAD, True), (BAD, False)]
    assert "(convertq:host:1:aaaa/1)" in found[0].what

    [left] = eventually(lambda: only_one(find(sessions.check_idle_sessions, context, fix=True)))
    assert (left.state, "(report)" in left.what) == (BAD, True)
    with pytest.raises(psycopg.OperationalError):
        ours.execute("SELECT")
    theirs.execute("ROLLBACK")
    assert state_of(sessions.check_idle_sessions, context) is OK


def only_one(findings: list[Finding]) -> list[Finding]:
    """A session that is terminated takes a while to end."""
    return findings if len(findings) == 1 else []


def test_dead_rows_are_bad_with_the_session_that_keeps_them(
    make_context: MakeContext, conn: Conn, connect: Connect
) -> None:
    limits = Limits(dead_rows=100, long_transaction_seconds=0)
    assert state_of(sessions.check_vacuum, make_context(limits)) is OK
    conn.execute("INSERT INTO jobs (bytes, sha256) SELECT 1, md5(n::text) FROM generate_series(1, 1000) n")
    reader = connect()
    reader.execute("SET application_name = 'nightly report'")
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM jobs")
    assert state_of(sessions.check_vacuum, make_context(replace(limits, dead_rows=10**6))) is WARN
    conn.execute("UPDATE jobs SET priority = 1")
    conn.execute("SELECT pg_stat_force_next_flush()")
    context = make_context(limits)
    [finding] = eventually(lambda: [each for each in find(sessions.check_vacuum, context) if each.state is BAD])
    assert f"kept by pid {reader.info.backend_pid} (nightly report)" in finding.what
    assert "idle in transaction: SELECT count(*) FROM jobs" in finding.what
    assert finding.remedy == f"end it: SELECT pg_terminate_backend({reader.info.backend_pid})"
    [finding] = find(sessions.check_vacuum, make_context(replace(limits, long_transaction_seconds=300)))
    assert (finding.state, finding.what.endswith("nobody holds them for over 5 min")) == (WARN, True)
    reader.execute("ROLLBACK")
    [finding] = find(sessions.check_vacuum, context)
    assert (finding.state, "nobody holds them" in finding.what) == (WARN, True)


def test_autovacuum_switched_off_for_the_table_is_bad(make_context: MakeContext, conn: Conn) -> None:
    conn.execute("ALTER TABLE jobs SET (autovacuum_enabled = false)")
    assert state_of(sessions.check_vacuum, make_context()) is BAD


def test_idle_sessions_that_a_plain_role_may_not_see_are_said_to_be_hidden(
    make_context: MakeContext, connect: Connect, conn: Conn, plain: Plain
) -> None:
    limits = Limits(idle_transaction_seconds=0)
    [finding] = find(sessions.check_idle_sessions, make_context(limits, DATABASE_URL=plain.url))
    assert (finding.state, finding.remedy) == (WARN, plain.remedy)
    assert finding.what == (
        "none that this role may see is idle in a transaction for over 0 min; 1 session of other roles is hidden"
    )
    connect().execute("BEGIN")
    context = make_context(limits, DATABASE_URL=plain.url)
    [finding] = find(sessions.check_idle_sessions, context)
    assert finding.what.endswith("; 2 sessions of other roles are hidden")

    with psycopg.connect(plain.url) as mine:
        mine.execute("SELECT")
        [finding] = find(sessions.check_idle_sessions, context)
        assert (finding.state, f"pid {mine.info.backend_pid} " in finding.what) == (BAD, True)

    conn.execute(sql.SQL("GRANT pg_read_all_stats TO {}").format(sql.Identifier(plain.name)))
    [finding] = find(sessions.check_idle_sessions, make_context(limits, DATABASE_URL=plain.url))
    assert finding.state is BAD
    assert re.search(r"is idle in a transaction for \d+ s", finding.what)


def test_where_nobody_else_is_connected_nothing_is_hidden_from_a_plain_role(
    make_context: MakeContext, plain: Plain
) -> None:
    [finding] = find(sessions.check_idle_sessions, make_context(DATABASE_URL=plain.url))
    assert finding.state is OK
    assert finding.what == "none is idle in a transaction for over 5 min"


def test_dead_rows_kept_by_a_session_that_a_plain_role_may_not_look_into(
    make_context: MakeContext, conn: Conn, connect: Connect, plain: Plain
) -> None:
    limits = Limits(dead_rows=100, long_transaction_seconds=0)
    conn.execute("INSERT INTO jobs (bytes, sha256) SELECT 1, md5(n::text) FROM generate_series(1, 1000) n")
    reader = connect()
    reader.execute("SET application_name = 'nightly report'")
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM jobs")
    assert state_of(sessions.check_vacuum, make_context(Limits(), DATABASE_URL=plain.url)) is OK
    conn.execute("UPDATE jobs SET priority = 1")
    conn.execute("SELECT pg_stat_force_next_flush()")
    context = make_context(limits, DATABASE_URL=plain.url)
    [finding] = eventually(lambda: [each for each in find(sessions.check_vacuum, context) if each.state is WARN])
    holder = f"pid {reader.info.backend_pid} (nightly report)"
    assert finding.what.endswith(f" live; perhaps kept by {holder}, which this role may not look into")
    assert finding.remedy == plain.remedy
    reader.execute("ROLLBACK")
    [finding] = find(sessions.check_vacuum, context)
    assert (finding.state, finding.what.endswith(" live, and nobody holds them")) == (WARN, True)


def test_connections_of_other_roles_are_counted_for_a_plain_role_too(
    make_context: MakeContext, connect: Connect, plain: Plain
) -> None:
    for _ in range(2):
        connect().execute("SET application_name = 'nightly report'")
    contexts = [make_context(), make_context(DATABASE_URL=plain.url)]

    def same(wanted: str) -> bool:
        """A session of an earlier test may just be leaving."""
        for context in contexts:
            inspect_server(context)
        return bool(contexts[0].server[wanted] == contexts[1].server[wanted])

    assert eventually(lambda: same("used_connections"))
    assert eventually(lambda: same("most_connections"))
    assert contexts[1].server["used_connections"] >= 4
    assert contexts[1].server["most_connections"] == "nightly report has 2"
