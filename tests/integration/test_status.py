"""The states of a job are the same in Python, in the table and in its functions."""

from __future__ import annotations

import re

import pytest
from convertq.queue.status import TERMINAL, JobStatus

from tests.jobs import Conn, one

EVERY = [str(status) for status in JobStatus]


def test_the_table_takes_exactly_the_states_that_python_knows(conn: Conn) -> None:
    text = one(conn, "SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE conname = 'status_is_known'")
    [listed] = re.findall(r"'{([\w,]+)}'", text["text"])
    assert listed.split(",") == EVERY
    assert one(conn, "SELECT job_statuses() AS listed")["listed"] == EVERY


@pytest.mark.parametrize("status", JobStatus)
def test_the_database_and_python_agree_on_what_is_finished(conn: Conn, status: JobStatus) -> None:
    row = one(conn, "SELECT is_active(%s) AS active, is_terminal(%s) AS terminal", str(status), str(status))
    assert (row["active"], row["terminal"]) == (status.is_active, status.is_terminal)


def test_every_transition_is_between_two_states_and_each_state_is_in_one(conn: Conn) -> None:
    rows = conn.execute("SELECT from_status, to_status FROM job_transitions()").fetchall()
    assert {status for row in rows for status in row.values()} == set(EVERY)


def test_the_functions_cost_no_index(conn: Conn) -> None:
    """The planner replaces the calls: the predicate of the index and a literal list match each other."""
    conn.execute("SET enable_seqscan = off")
    listed = ", ".join(f"'{status}'" for status in TERMINAL)
    for condition in ("is_terminal(status)", f"status IN ({listed})"):
        query = f"EXPLAIN SELECT id FROM jobs WHERE upload_path IS NOT NULL AND {condition}"
        query += " ORDER BY greatest(completed_at, failed_at, cancelled_at, created_at), id"
        plan = "\n".join(row["QUERY PLAN"] for row in conn.execute(query).fetchall())
        assert "jobs_with_a_source_to_expire" in plan
        assert "is_terminal" not in plan
