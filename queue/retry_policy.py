"""The retry policy: whether a failed attempt is repeated, and after which delay."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from convertq.queue.backoff import pause_after
from convertq.queue.config import Config
from convertq.queue.errors import Code, Failure
from convertq.queue.outcome import Failed, Interrupted, RetryLater
from tenacity import wait_exponential

RETRY_AFTER_MAX_SECONDS = 600  # a gateway cannot delay a job for longer
DELAY_MAX_MS = 24 * 3600 * 1000  # the delay doubles with every attempt and would outgrow any clock


def after_failure(
    failure: Failure, attempt: int, config: Config, dice: Callable[[float, float], float] = random.uniform
) -> RetryLater | Failed:
    """`attempt` counts from 1, as the row does."""
    if not failure.retryable:
        return Failed(failure, dead_letter=False)
    if attempt >= attempts_allowed(failure.code, config.retry_max_attempts):
        return Failed(failure, dead_letter=True)
    doubled = wait_exponential(multiplier=config.retry_base_delay_ms, max=DELAY_MAX_MS)
    backoff_ms = pause_after(attempt, doubled) + dice(0, config.retry_jitter_max_ms)
    requested_ms = (failure.retry_after or 0) * 1000
    return RetryLater(failure, int(max(min(backoff_ms, DELAY_MAX_MS), requested_ms)))


def after_busy_answer(
    failure: Failure, config: Config, dice: Callable[[float, float], float] = random.uniform
) -> Interrupted:
    """A busy gateway does not use up an attempt: the job waits as long as the gateway requests, or the base delay."""
    if failure.retry_after is not None:
        delay_ms = failure.retry_after * 1000
    else:
        delay_ms = config.retry_base_delay_ms + dice(0, config.retry_jitter_max_ms)
    return Interrupted("busy", int(delay_ms), failure.gateway_status)


def attempts_allowed(code: str | None, max_attempts: int) -> int:
    """The attempts of a job whose last error has this code. After an IO_ERROR there is one more attempt at most."""
    return min(2, max_attempts) if code == Code.IO_ERROR else max_attempts


def parse_retry_after(text: str | None, answered_at: str | None) -> float | None:
    """Seconds, or an HTTP date, taken against the gateway's own Date where it sends one: clocks need not agree."""
    if text is None:
        return None
    if text.strip().isdecimal() and text.strip().isascii():
        return min(float(text), RETRY_AFTER_MAX_SECONDS)
    try:
        now = parsedate_to_datetime(answered_at) if answered_at else datetime.now(UTC)
        seconds = (parsedate_to_datetime(text) - now).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(seconds, RETRY_AFTER_MAX_SECONDS) if seconds >= 0 else None
