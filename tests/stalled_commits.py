"""Commits in tests that wait for a standby that does not exist: whether they do already."""

from __future__ import annotations

import psycopg

from tests.jobs import begin
from tests.waiting import WAIT_SECONDS, eventually

STALLED = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"


def wait_until_commits_stall(url: str) -> None:
    """Commits wait from the moment at which the checkpointer has read synchronous_standby_names. That can be after
    every other session has read it, so a commit is tried."""
    with psycopg.connect(url, autocommit=True) as observer:
        eventually(lambda: _stalls(url, observer), what="a commit that waits for a standby")


def _stalls(url: str, observer: psycopg.Connection) -> bool:
    with psycopg.connect(url, autocommit=True, options="-c synchronous_commit=on") as conn:
        commit = begin(lambda: conn.execute("SELECT pg_logical_emit_message(true, 'tests', '')"))
        pid = conn.info.backend_pid
        eventually(lambda: commit.done() or observer.execute(STALLED, [pid]).rowcount, what="a commit, or its wait")
        is_stalled = not commit.done()
        observer.execute("SELECT pg_cancel_backend(%s)", [pid])
        commit.result(WAIT_SECONDS)
    return is_stalled
