"""What a supervisor does for the whole queue between its heartbeats: it fails late jobs, moves jobs of owners who were
paused or resumed, keeps the turns of owners and their limits, and measures what estimates are made from."""

from __future__ import annotations

import time

from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.deadlines import expire_jobs
from convertq.queue.estimate_upkeep import EstimateUpkeep
from convertq.queue.fair_share import FairShare
from convertq.queue.job_events import JobEvents
from convertq.queue.pauses import Resumption, Sweep, start_sweep

#: A late job fails within 5 s; the supervisor's loop adds up to a second, and a busy machine some more.
EXPIRE_EVERY_SECONDS = 1.5
MOVE_EVERY_SECONDS = 5.0
#: Where owners take turns or have a limit: no new turn is much earlier than those of the jobs that are claimed.
SHARE_EVERY_SECONDS = 1.0
#: Between two checks of its workers, so that a pass must be short.
MOVE_FOR_SECONDS = 0.25


class QueueUpkeep:
    def __init__(self, config: Config, events: JobEvents, fair_share: FairShare) -> None:
        self._events, self._fair_share, self._estimates = events, fair_share, EstimateUpkeep(config)
        self._sweep: Sweep | None = None
        self._resumption: Resumption | None = None
        self._expire_at = self._move_at = self._share_at = 0.0

    def keep_up(self, database: Database) -> None:
        if time.monotonic() >= self._expire_at:
            has_more = expire_jobs(database, self._events)
            self._expire_at = 0.0 if has_more else time.monotonic() + EXPIRE_EVERY_SECONDS
        if time.monotonic() >= self._move_at:
            has_more = self._move_jobs(database)
            self._move_at = 0.0 if has_more else time.monotonic() + MOVE_EVERY_SECONDS
        if time.monotonic() >= self._share_at:
            is_on = self._fair_share.keep_up(database, MOVE_FOR_SECONDS)
            self._share_at = time.monotonic() + (SHARE_EVERY_SECONDS if is_on else MOVE_EVERY_SECONDS)
        self._estimates.keep_up(database)

    def _move_jobs(self, database: Database) -> bool:
        """Whether there is more to move."""
        self._resumption = self._resumption or Resumption()
        if self._resumption.run(database, MOVE_FOR_SECONDS):
            self._resumption = None
        self._sweep = self._sweep or start_sweep(database)
        if self._sweep and self._sweep.run(database, MOVE_FOR_SECONDS):
            self._sweep = None
        return self._resumption is not None or self._sweep is not None
