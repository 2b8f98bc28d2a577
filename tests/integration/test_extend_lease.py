"""extend_lease: the holder's lease, and nobody else's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import (
    Conn,
    claimed,
    complete,
    events_of,
    everything,
    expire_lease,
    lose_lease,
    one,
    queue,
    row_of,
)


def test_the_holder_gets_its_whole_time_again(conn: Conn) -> None:
    job = claimed(conn)
    expire_lease(conn, job)
    job.lease_ends = 0.0
    assert queue(conn, WORKER_LEASE_TTL_SEC=900).extend_lease(job)
    assert one(conn, "SELECT lease_expires_at > now() + interval '800 s' AS held FROM jobs")["held"]
    assert job.lease_ends > 0


def test_it_is_no_transition_and_leaves_no_event(conn: Conn) -> None:
    job = claimed(conn)
    before = events_of(conn, job)
    queue(conn).extend_lease(job)
    assert events_of(conn, job) == before


def test_an_expired_lease_that_nobody_took_is_still_its_holders(conn: Conn) -> None:
    job = claimed(conn)
    expire_lease(conn, job)
    assert queue(conn).extend_lease(job)
    assert queue(conn).reclaim_jobs() == []


@pytest.mark.parametrize("fence", [{"holder": "host:9:zzzz/1"}, {"attempt": 2}, {"attempt": 0}])
def test_a_fence_that_does_not_fit_changes_nothing(conn: Conn, fence: dict[str, object]) -> None:
    job = claimed(conn)
    stranger = replace(job, **fence)  # type: ignore[arg-type]
    before, stranger.lease_ends = everything(conn), 1.0
    assert not queue(conn).extend_lease(stranger)
    assert everything(conn) == before
    assert stranger.lease_ends == 1.0


def test_a_lost_lease_changes_nothing(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job)
    before = everything(conn)
    assert not queue(conn).extend_lease(job)
    assert everything(conn) == before


def test_a_second_attempt_of_the_same_holder_is_not_extended_by_the_first(conn: Conn) -> None:
    job = claimed(conn)
    lose_lease(conn, job, to=job.holder)
    before = everything(conn)
    assert not queue(conn).extend_lease(job)
    assert everything(conn) == before


def test_a_finished_job_has_no_lease_to_extend(conn: Conn) -> None:
    job = claimed(conn)
    complete(conn, job)
    assert not queue(conn).extend_lease(job)
    assert row_of(conn, job)["lease_expires_at"] is None
