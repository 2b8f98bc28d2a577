"""When jobs will probably be done, in words."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from convertq.cli.context import configuration
from convertq.cli.formatting import timestamp
from convertq.queue.database.database import Database
from convertq.queue.estimates import MOST_ESTIMATED_JOBS, Estimate, estimate_jobs


def probably_done(estimate: Estimate, now: datetime) -> str:
    median, late = timestamp(estimate.done_at, now), timestamp(estimate.done_by, now)
    return f"probably done at {median}, in nine of ten cases by {late}"


def find_last_done_by(database: Database, ids: Collection[UUID]) -> datetime | None:
    """When all of these jobs will probably be done; None when that cannot be said of each of them."""
    if not 0 < len(ids) <= MOST_ESTIMATED_JOBS:
        return None
    estimates = estimate_jobs(database, configuration(), list(ids)).estimates
    return max(each.done_by for each in estimates.values()) if len(estimates) == len(ids) else None
