"""The circuit breaker of each gateway as a worker uses it: outcomes, the probe, and the trial that closes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.errors import Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.log.lines import Log

PROBE_TIMEOUT_SECONDS = 5.0
#: After this time another worker may probe: the first one has died during its probe.
PROBE_LEASE_SECONDS = PROBE_TIMEOUT_SECONDS * 2


class Change(NamedTuple):
    """A change of the breaker by a transaction of this worker that may not have been committed."""

    event: str
    fields: dict[str, Any]
    transaction: str  # its id


class Breaker:
    """The state of each breaker is in the database. This object keeps only the changes that are not logged yet."""

    def __init__(self, config: Config, log: Log) -> None:
        self._config, self._log = config, log
        self._changes: list[Change] = []

    @contextmanager
    def recording(self, database: Database, job: ClaimedJob, failure: Failure) -> Iterator[None]:
        """Wraps the statement that records a failure. A failed call may open the breaker in the same transaction."""
        if failure.gateway_ok is None:
            yield
            return
        with database.transaction():
            # The job is locked before the breaker, as in a reclaim: otherwise the two could wait for each other.
            database.run("lock_lease", **job.fence)
            if failure.gateway_ok:
                self.end_trial(database, job, called=True)
                yield
                return
            database.run("lock_breaker", gateway=job.route)
            yield
            self._open_if_failing(database, job.route)

    def _open_if_failing(self, database: Database, gateway: str) -> None:
        opened = database.one(
            "trip_breaker", gateway=gateway, window=self._config.circuit_window,
            threshold=self._config.circuit_fail_threshold, cooldown_ms=self._config.circuit_cooldown_ms,
        )  # fmt: skip
        if opened:
            reason = f"{opened['failures']} of the last {opened['calls']} gateway calls failed"
            self._remember(database, "breaker_open", gateway=gateway, reason=reason)

    def end_trial(self, database: Database, job: ClaimedJob, *, called: bool | None) -> None:
        """Called in the transaction that ends a job without a failure of the gateway.

        A job that was completed from a leftover result proves nothing about the gateway: the next job is the trial.
        """
        if not job.is_trial:
            return
        if not called:
            database.run("release_trial", id=job.id)
        elif closed := database.one("close_breaker", id=job.id):
            seconds = round(closed["seconds"], 3)
            self._remember(database, "breaker_closed", gateway=closed["gateway"], open_seconds=seconds)

    @contextmanager
    def ending_trial(self, database: Database, job: ClaimedJob, *, is_answered: bool) -> Iterator[None]:
        """Wraps the statement that requeues a job. An answer that is not a failure ends a trial well."""
        if not (job.is_trial and is_answered):
            yield
            return
        with database.transaction():
            database.run("lock_lease", **job.fence)
            self.end_trial(database, job, called=True)
            yield

    def _remember(self, database: Database, event: str, **fields: Any) -> None:
        transaction = database.run("get_transaction_id")[0]["id"]
        self._changes.append(Change(event, fields, transaction))

    def log_changes(self, database: Database) -> None:
        """Logs each change once in the whole cluster: by the worker that made it, if it was committed.

        The answer to the COMMIT may have been lost, so the transaction's status is read. A change whose transaction is
        not decided yet is kept for the next call.
        """
        changes, self._changes = self._changes, []
        for change in changes:
            match self._status(database, change):
                case "committed":
                    breaker = "open" if change.event == "breaker_open" else "closed"
                    self._log(change.event, breaker=breaker, **change.fields)
                case "unknown" | "in progress":
                    self._changes.append(change)

    @staticmethod
    def _status(database: Database, change: Change) -> str | None:
        """None: the transaction belongs to another cluster, or is too old to be known."""
        try:
            status: str | None = database.run("get_transaction_status", id=change.transaction)[0]["status"]
        except psycopg.Error:
            return "unknown"
        return status

    def probe(self, database: Database, gateway: str, holder: str, is_healthy: Callable[[], bool]) -> bool:
        """Whether this worker may now claim the trial; `is_healthy` checks the gateway."""
        cooldown_ms = self._config.circuit_cooldown_ms
        taken = database.one(
            "take_probe", gateway=gateway, holder=holder, probe_timeout=PROBE_LEASE_SECONDS, cooldown_ms=cooldown_ms
        )
        if not taken or not taken["is_mine"]:
            return False
        healthy = is_healthy()
        settled = database.one("settle_probe", gateway=gateway, holder=holder, healthy=healthy, cooldown_ms=cooldown_ms)
        return settled is not None and settled["state"] == "half_open"
