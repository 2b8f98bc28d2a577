"""The routes in force: which gateway converts which mapping, as the active servers declare it, and jobs that follow it.

A supervisor declares its gateways in its row in `servers`. If that changes where the jobs of a mapping belong, those
that are queued are given their new route, page by page.
"""

from __future__ import annotations

import time

from convertq.queue.adaptive_limit import AdaptiveLimit
from convertq.queue.database.database import Database
from convertq.queue.scan_budget import START

PAGE_JOBS = 500
#: A supervisor does it between two checks of its workers, so that a pass must be short.
REROUTE_SECONDS = 0.25

_FIRST = {**START.parameters, "route": ""}  # before the jobs of every route


class Routing:
    """It remembers how far this supervisor has come with the queue."""

    def __init__(self) -> None:
        self.has_limits = False  # of any gateway
        self._restart()

    def _restart(self) -> None:
        self._after, self._oldest, self._stale = dict(_FIRST), "", 0

    def keep_up(self, database: Database) -> None:
        """Called at registration and with each heartbeat: servers come and go."""
        database.run("declare_limits", first_limit=AdaptiveLimit().max_calls)
        declared = database.run("declare_gateways")[0]
        self.has_limits = declared["has_limits"]
        if declared["must_reroute"]:
            self._reroute(database)

    def _reroute(self, database: Database) -> None:
        """Jobs of a transaction that began before the change may appear later: only a pass that began after the end of
        all these, and found nothing, is the last one."""
        pause_at = time.monotonic() + REROUTE_SECONDS
        while time.monotonic() < pause_at:
            after = {f"after_{name.removeprefix('after_')}": value for name, value in self._after.items()}
            row = database.run("reroute_jobs", **after, page=PAGE_JOBS)[0]
            self._oldest = self._oldest or row["oldest"]
            self._stale += row["stale"]
            if row["jobs"] == PAGE_JOBS:
                self._after = {name: row[name] for name in ("route", "priority", "turn", "created_at", "id")}
                continue
            is_last, oldest = not self._stale, self._oldest
            self._restart()
            if is_last:
                database.run("finish_rerouting", oldest=oldest)
                return
