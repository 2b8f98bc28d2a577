"""The circuit breaker as a worker meets it: outcomes that trip it, the probe, and the one trial that closes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from convertq.worker.config import Config
from convertq.worker.db import Database
from convertq.worker.errors import Failure
from convertq.worker.gateway_client import is_healthy
from convertq.worker.job import Job
from convertq.worker.log import Log

PROBE_TIMEOUT = 5.0  # s
#: s after which another worker may probe, should this one die in the middle
PROBE_LEASE = PROBE_TIMEOUT * 2


class Breaker:
    """Its state is in the database; here is only what happened to it in the transaction under way."""

    def __init__(self, config: Config, log: Log) -> None:
        self._config, self._log = config, log
        self._unsaid: list[tuple[str, dict[str, Any]]] = []

    @contextmanager
    def recording(self, database: Database, job: Job, failure: Failure) -> Iterator[None]:
        """Around the statement that records a failure. A failed call is weighed in the same transaction."""
        self._unsaid.clear()  # of a transaction that was lost
        if failure.gateway_ok is None:
            yield
            return
        with database.transaction():
            # the job before the breaker, as a reclaim locks them, or the two could wait for each other
            database.run("lock_lease", **job.fence)
            if failure.gateway_ok:
                self.trial_went_well(database, job)
                yield
                return
            database.run("lock_breaker")
            yield
            self._weigh(database)

    def _weigh(self, database: Database) -> None:
        opened = database.one(
            "trip_breaker", window=self._config.circuit_window, threshold=self._config.circuit_fail_threshold,
            cooldown_ms=self._config.circuit_cooldown_ms,
        )  # fmt: skip
        if opened:
            reason = f"{opened['failures']} of the last {opened['calls']} gateway calls failed"
            self._unsaid.append(("breaker_open", {"reason": reason}))

    def trial_went_well(self, database: Database, job: Job) -> None:
        if not job.is_trial:
            return
        self._unsaid.clear()
        if closed := database.one("close_breaker", id=job.id):
            self._unsaid.append(("breaker_closed", {"open_seconds": round(closed["seconds"], 3)}))

    def say(self) -> None:
        """After the commit: one line per opening in the whole cluster, by whoever made the change."""
        for event, fields in self._unsaid:
            self._log(event, breaker="open" if event == "breaker_open" else "closed", **fields)
        self._unsaid.clear()

    def probe(self, database: Database, holder: str) -> bool:
        """Whether this worker may now claim the trial."""
        cooldown_ms = self._config.circuit_cooldown_ms
        taken = database.one("take_probe", holder=holder, probe_timeout=PROBE_LEASE, cooldown_ms=cooldown_ms)
        if not taken or not taken["is_mine"]:
            return False
        healthy = is_healthy(self._config, PROBE_TIMEOUT)
        settled = database.one("settle_probe", holder=holder, healthy=healthy, cooldown_ms=cooldown_ms)
        return settled is not None and settled["state"] == "half_open"
