"""How far a replica is behind, and whether somebody who has just written may read from it."""

from __future__ import annotations

import pytest
from convertq.queue.wal_position import NEVER, ReplicaLag, format_position, parse_position


@pytest.mark.parametrize("text", ["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"])
def test_a_position_is_read_as_postgresql_writes_it(text: str) -> None:
    assert format_position(parse_position(text) or 0) == text


@pytest.mark.parametrize("text", [None, "", "1", "/", "1/", "x/1", "1/123456789", " 1/1", "1/1\n", "1/1;"])
def test_anything_else_is_no_position(text: str | None) -> None:
    assert parse_position(text) is None


def test_no_replica_ever_has_what_was_never_written() -> None:
    assert parse_position(format_position(NEVER)) == NEVER


def test_a_replica_is_not_trusted_before_it_has_caught_up_once() -> None:
    lag = ReplicaLag()
    assert not lag.is_close(0)
    lag.add_primary_position(0, 100)
    lag.set_replayed(99)
    assert not lag.is_close(0)
    lag.set_replayed(100)
    assert lag.is_close(1000)


def test_it_is_behind_by_the_age_of_the_oldest_position_that_it_has_not() -> None:
    lag = ReplicaLag()
    lag.add_primary_position(0, 100)
    lag.set_replayed(100)
    for second in range(1, 500):
        lag.add_primary_position(second, 100 + second)
    assert lag.is_close(6)
    assert not lag.is_close(6.1)
    lag.set_replayed(105)
    assert not lag.is_close(500)
    lag.set_replayed(1000)
    assert lag.is_close(500)


def test_a_primary_that_writes_nothing_or_is_away_makes_nobody_late() -> None:
    lag = ReplicaLag()
    for second in range(100):
        lag.add_primary_position(second, 100)
        lag.set_replayed(100)
    assert lag.is_close(10_000)


def test_a_new_primary_at_an_earlier_position_makes_nobody_late_for_ever() -> None:
    lag = ReplicaLag()
    lag.add_primary_position(0, 100)
    lag.set_replayed(100)
    lag.add_primary_position(1, 200)  # never replicated
    for second in range(2, 10):
        lag.add_primary_position(second, 110 + second)
        lag.set_replayed(110 + second)
    assert lag.is_close(10)
