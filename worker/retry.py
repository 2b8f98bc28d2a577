"""Again or never: what a failure means for the job."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from convertq.worker.config import Config
from convertq.worker.errors import Code, Failure
from convertq.worker.outcome import Failed, RetryLater

RETRY_AFTER_MAX = 600  # s; a gateway cannot park a job for longer
DELAY_MAX_MS = 24 * 3600 * 1000  # 2^attempt outgrows any clock


def after_failure(
    failure: Failure, attempt: int, config: Config, dice: Callable[[float, float], float] = random.uniform
) -> RetryLater | Failed:
    """`attempt` counts from 1, as the row does."""
    if not failure.retryable:
        return Failed(failure, dead_letter=False)
    limit = min(2, config.retry_max_attempts) if failure.code is Code.IO_ERROR else config.retry_max_attempts
    if attempt >= limit:
        return Failed(failure, dead_letter=True)
    backoff = config.retry_base_delay_ms * 2 ** min(attempt - 1, 40) + dice(0, config.retry_jitter_max_ms)
    asked = (failure.retry_after or 0) * 1000
    return RetryLater(failure, int(max(min(backoff, DELAY_MAX_MS), asked)))


def parse_retry_after(text: str | None, answered_at: str | None) -> float | None:
    """Seconds, or an HTTP date, taken against the gateway's own Date where it sends one: clocks need not agree."""
    if text is None:
        return None
    if text.strip().isdecimal() and text.strip().isascii():
        return min(float(text), RETRY_AFTER_MAX)
    try:
        now = parsedate_to_datetime(answered_at) if answered_at else datetime.now(UTC)
        seconds = (parsedate_to_datetime(text) - now).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(seconds, RETRY_AFTER_MAX) if seconds >= 0 else None
