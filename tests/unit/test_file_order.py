"""The order of the test files names files that exist."""

from __future__ import annotations

from pathlib import Path

from tests.file_order import LONGEST


def test_every_file_of_the_order_exists_and_is_named_once() -> None:
    tests = Path(__file__).parents[1]
    assert [name for name in LONGEST if not (tests / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)
