"""The state machine: a status moves along its arrows, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from convertq.queue.status import JobStatus

from tests.jobs import Conn, events_of, insert_job, set_status, status_of

STATUSES = [str(status) for status in JobStatus]
ARROWS = {
    ("uploaded", "queued"), ("uploaded", "failed"), ("queued", "processing"), ("queued", "failed"),
    ("processing", "complete"), ("processing", "failed"), ("processing", "queued"), ("failed", "queued"),
    ("complete", "queued"), ("uploaded", "cancelled"), ("queued", "cancelled"), ("processing", "cancelled"),
    ("cancelled", "queued"), ("cancelled", "uploaded"),
}  # fmt: skip
FORBIDDEN = [(old, new) for old in STATUSES for new in STATUSES if old != new and (old, new) not in ARROWS]


def test_the_diagram_of_the_readme_has_exactly_these_arrows() -> None:
    diagram = (Path(__file__).parents[2] / "README.md").read_text().partition("```mermaid")[2].partition("```")[0]
    drawn = set(re.findall(r"^ *(\w+) --> (\w+)", diagram, re.MULTILINE))
    assert drawn == ARROWS


def test_the_database_lists_exactly_these_arrows(conn: Conn) -> None:
    rows = conn.execute("SELECT from_status, to_status FROM job_transitions()").fetchall()
    assert {(row["from_status"], row["to_status"]) for row in rows} == ARROWS


@pytest.mark.parametrize(("old", "new"), sorted(ARROWS))
def test_an_arrow_can_be_taken_and_leaves_its_event(conn: Conn, old: str, new: str) -> None:
    job = insert_job(conn, old)
    set_status(conn, job, new)
    assert status_of(conn, job) == new
    event = "retry" if new == "uploaded" else new  # a cancelled job that is started over, and waits
    assert events_of(conn, job) == ["created", *([old] if old != "uploaded" else []), event]


@pytest.mark.parametrize(("old", "new"), FORBIDDEN)
def test_any_other_way_is_refused_in_plain_words(conn: Conn, old: str, new: str) -> None:
    job = insert_job(conn, old)
    before = events_of(conn, job)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"job {job} cannot go from {old} to {new}") as refused:
        set_status(conn, job, new)
    assert refused.value.diag.constraint_name == "job_transition_is_allowed"
    assert "processing to complete, failed, queued or cancelled" in (refused.value.diag.message_hint or "")
    assert (status_of(conn, job), events_of(conn, job)) == (old, before)


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_may_stay_as_it_is_without_an_event(conn: Conn, status: str) -> None:
    job = insert_job(conn, status)
    before = events_of(conn, job)
    conn.execute("UPDATE jobs SET status = status, priority = 5 WHERE id = %s", [job])
    assert events_of(conn, job) == before
