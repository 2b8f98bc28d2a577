"""lock_lease: while it is locked nobody takes the job, and only its holder can lock it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import Connect
from tests.jobs import Conn, claimed, complete, everything, expire_lease, lose_lease, queue


def test_the_holder_locks_its_job_and_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    before = everything(conn)
    assert queue(conn).lock_lease(job)
    assert everything(conn) == before


@pytest.mark.parametrize("fence", [{"holder": "host:9:zzzz/1"}, {"attempt": 2}])
def test_nobody_else_can(conn: Conn, fence: dict[str, object]) -> None:
    job = claimed(conn)
    assert not queue(conn).lock_lease(replace(job, **fence))  # type: ignore[arg-type]


def test_a_lost_lease_cannot_be_locked(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job)
    assert not queue(conn).lock_lease(job)


def test_a_finished_job_cannot_be_locked(conn: Conn) -> None:
    job = claimed(conn)
    complete(conn, job)
    assert not queue(conn).lock_lease(job)


def test_a_locked_job_is_not_reclaimed_even_when_its_lease_has_ended(conn: Conn, connect: Connect) -> None:
    job = claimed(conn)
    expire_lease(conn, job)
    with conn.transaction():
        assert queue(conn).lock_lease(job)
        assert queue(connect()).reclaim_jobs() == []
        assert complete(conn, job)
    assert queue(conn).reclaim_jobs() == []
