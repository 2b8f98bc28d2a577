"""The retry policy: delays, limits, and the delay that a gateway may request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from convertq.queue.errors import Code, Failure
from convertq.queue.outcome import Failed, RetryLater
from convertq.queue.retry_policy import after_failure, parse_retry_after
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs import config

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def after(code: Code, attempt: int, retry_after: float | None = None, **settings: object) -> RetryLater | Failed:
    failure = Failure(code, "x", retry_after=retry_after)
    return after_failure(failure, attempt, config(**settings), dice=lambda low, high: high)


def delay(attempt: int, retry_after: float | None = None, **settings: object) -> int:
    outcome = after(Code.GW_5XX, attempt, retry_after, **{"RETRY_MAX_ATTEMPTS": 1000} | settings)
    assert isinstance(outcome, RetryLater)
    return outcome.delay_ms


@pytest.mark.parametrize(("attempt", "expected"), [(1, 5000), (2, 10_000), (3, 20_000), (5, 80_000)])
def test_the_delay_doubles_from_the_base(attempt: int, expected: int) -> None:
    assert delay(attempt, RETRY_JITTER_MAX_MS=0) == expected


def test_the_dice_are_thrown_between_nothing_and_the_jitter() -> None:
    thrown = []

    def dice(low: float, high: float) -> float:
        thrown.append((low, high))
        return 7

    outcome = after_failure(Failure(Code.UNKNOWN, "x"), 1, config(RETRY_JITTER_MAX_MS=9, RETRY_BASE_DELAY_MS=0), dice)
    assert isinstance(outcome, RetryLater)
    assert (outcome.delay_ms, thrown) == (7, [(0, 9)])


def test_a_high_attempt_does_not_outgrow_the_clock() -> None:
    assert delay(900) == 24 * 3600 * 1000


@pytest.mark.parametrize("code", [Code.GW_5XX, Code.GW_TIMEOUT, Code.UNKNOWN])
def test_the_last_attempt_ends_as_a_dead_letter(code: Code) -> None:
    assert isinstance(after(code, 2, RETRY_MAX_ATTEMPTS=3), RetryLater)
    last = after(code, 3, RETRY_MAX_ATTEMPTS=3)
    assert isinstance(last, Failed)
    assert last.dead_letter


@pytest.mark.parametrize(("limit", "last"), [(1, 1), (2, 2), (3, 2), (10, 2)])
def test_an_io_error_is_tried_once_more_at_most(limit: int, last: int) -> None:
    outcomes = [after(Code.IO_ERROR, attempt, RETRY_MAX_ATTEMPTS=limit) for attempt in range(1, last + 1)]
    assert all(isinstance(outcome, RetryLater) for outcome in outcomes[:-1])
    assert isinstance(outcomes[-1], Failed)
    assert outcomes[-1].dead_letter


@pytest.mark.parametrize("code", [Code.GW_4XX, Code.NOT_PDF, Code.TOO_LARGE])
def test_what_is_never_tried_again_is_no_dead_letter(code: Code) -> None:
    outcome = after(code, 1)
    assert isinstance(outcome, Failed)
    assert not outcome.dead_letter


def test_a_full_disk_is_no_dead_letter() -> None:
    outcome = after_failure(Failure(Code.IO_ERROR, "x", retryable=False), 1, config())
    assert outcome == Failed(outcome.failure, dead_letter=False)


def test_the_gateway_can_lengthen_the_delay_but_not_shorten_it() -> None:
    assert delay(1, 120) == 120_000
    assert delay(1, 1, RETRY_JITTER_MAX_MS=0) == 5000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None), ("0", 0), ("7", 7), (" 7 ", 7), ("600", 600), ("601", 600), ("9" * 400, 600),
        ("-1", None), ("1.5", None), ("soon", None), ("", None), ("٣", None), ("1e3", None),
    ],
)  # fmt: skip
def test_seconds_are_taken_up_to_ten_minutes_and_nonsense_is_ignored(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, None) == seconds


@pytest.mark.parametrize(("ahead", "seconds"), [(90, 90), (0, 0), (-1, None), (7200, 600)])
def test_a_date_is_taken_against_the_gateways_own_clock(ahead: int, seconds: float | None) -> None:
    requested = format_datetime(NOW + timedelta(seconds=ahead), usegmt=True)
    assert parse_retry_after(requested, format_datetime(NOW, usegmt=True)) == seconds


def test_a_date_without_the_gateways_clock_is_taken_against_ours() -> None:
    assert parse_retry_after(format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True), None) == 600


@given(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.text()))
def test_no_header_can_break_it(text: str | None, answered_at: str | None) -> None:
    seconds = parse_retry_after(text, answered_at)
    assert seconds is None or 0 <= seconds <= 600
