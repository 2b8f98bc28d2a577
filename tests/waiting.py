"""Waiting in tests: the one place that sleeps, always towards a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg

T = TypeVar("T")
Row = dict[str, Any]
STEP_SECONDS = 0.01
#: How long a test waits for what must happen. Only a test that fails waits that long, so it is for the busiest machine.
WAIT_SECONDS = 60.0


def eventually(predicate: Callable[[], T], timeout: float = WAIT_SECONDS, what: str = "the condition") -> T:
    """The first truthy answer of `predicate`; an AssertionError that says `what` did not come true."""
    deadline = time.monotonic() + timeout
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout:g} s (last answer: {answer!r})")
        time.sleep(STEP_SECONDS)
    return answer


def wait_for_row(
    conn: psycopg.Connection[Row],
    query: LiteralString,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    timeout: float = WAIT_SECONDS,
) -> Row:
    """The first row of `query`, as soon as it gives one; `conn` must be in autocommit to see it."""

    def first_row() -> Row | None:
        return conn.execute(query, params).fetchone()

    row = eventually(first_row, timeout, f"a row of [{query}] with {params}")
    assert row is not None
    return row
