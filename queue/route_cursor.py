"""Claiming where there are several gateways, or limits: from which gateway the next job comes, and with which slot.

With one gateway that has no limit, a claim is one statement. Otherwise `choose_route` first peeks at the gateways that
may be called now, and the job is claimed where the first of all is. A gateway that is down, or at its limit, is not
even peeked at.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from convertq.queue.claim import Claim, ClaimCursor
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.scan_budget import ScanBudget
from psycopg.rows import DictRow

#: How often a worker reads which mappings only other servers know.
READ_MAPPINGS_EVERY_SECONDS = 10.0
#: A claim that promotes retries looks again: they may be of another gateway.
MOST_ROUNDS = 5

Probe = Callable[[str], bool]  # by the name of the gateway: whether this worker may now claim the trial
CloseConnection = Callable[[str], None]


class Choice(NamedTuple):
    """What a peek has found: gateways with a job, in the order to try them, and those that are to be probed."""

    routes: list[DictRow]
    probes: list[str]
    is_closed: bool  # at least one breaker is


class RouteCursor:
    """The claims of one worker on one connection, from all gateways that its configuration names."""

    def __init__(
        self, database: Database, config: Config, scans: Mapping[str, ScanBudget], probe: Probe, close: CloseConnection
    ) -> None:
        self.database, self._probe, self._close = database, probe, close
        self._cursors = {name: ClaimCursor(database, config, scans[name], name) for name in config.gateway_names}
        self._mappings = {gateway.name: list(gateway.mappings) for gateway in config.gateways}
        self._knows_all_mappings = config.gateways_file is None
        self._read_mappings_at = 0.0
        self._is_limited = False
        self._slot: tuple[str, str] | None = None  # the gateway and the holder of the slot that this worker has

    @property
    def _only(self) -> ClaimCursor | None:
        return next(iter(self._cursors.values())) if len(self._cursors) == 1 else None

    def claim_job(self, server: str, holder: str, *, known: bool = False) -> Claim:
        """`known` means that a job is believed to be there, because of a wake-up for example."""
        self._read_mappings()
        if self._only is not None and not self._is_limited:
            claim = self._only.claim_job(server, holder, known=known)
            self._is_limited = claim.state.is_limited
            if claim.jobs or not self._is_limited:
                return claim
        claim = self._claim_from_one(server, holder, known=known)
        self._release_slot_except(claim.route if claim.jobs else None)
        return claim

    def _claim_from_one(self, server: str, holder: str, *, known: bool) -> Claim:
        for _ in range(MOST_ROUNDS):
            promoted = self._promoted_in_all
            choice = self._choose(holder)
            if any(self._probe(gateway) for gateway in choice.probes):
                choice = self._choose(holder)
            claim = self._claim_in_order(choice, server, holder, known=known)
            if claim.jobs or self._promoted_in_all == promoted:
                break
        if not claim.jobs and choice.is_closed:
            claim.state.breaker = "closed"  # the queue is held only while every gateway is
        claim.state.probe_is_due = False  # it was probed above
        return claim

    @property
    def _promoted_in_all(self) -> int:
        return sum(cursor.promoted_in_all for cursor in self._cursors.values())

    def _claim_in_order(self, choice: Choice, server: str, holder: str, *, known: bool) -> Claim:
        for row in choice.routes:
            if row["is_limited"] and not self._take_slot(row, holder):
                continue
            claim = self._cursors[row["route"]].claim_job(server, holder, known=known)
            if claim.jobs:
                return claim
        # Nothing was found. The last statement tells what the queue is like, and whether retries are due.
        return next(iter(self._cursors.values())).claim_job(server, holder)

    def next_cursor(self, holder: str) -> ClaimCursor | None:
        """Where the claim that a completion takes along comes from; None where something else has to follow."""
        if self._only is not None and (not self._is_limited or self._slot == (self._only.route, holder)):
            return self._only
        choice = self._choose(holder)
        if choice.probes or not choice.routes:
            return None
        first = choice.routes[0]
        is_ready = self._has_slot(first, holder) if first["is_limited"] else self._slot is None
        return self._cursors[first["route"]] if is_ready else None

    def _choose(self, holder: str) -> Choice:
        rows = peek(self.database, self._cursors, holder)
        self._is_limited = any(row["is_limited"] for row in rows)
        routes = [row for row in rows if row["first_id"] is not None]
        routes += [
            row
            for row in rows
            if row["may_run"] and row["first_id"] is None and self._cursors[row["route"]].may_find_more
        ]
        probes = [row["route"] for row in rows if row["probe_is_due"]]
        return Choice(routes, probes, any(row["breaker"] == "closed" for row in rows))

    # -- mappings that only other servers know --

    def expect_other_mappings(self) -> None:
        """A job was claimed whose mapping this worker does not know."""
        self._read_mappings_at = 0.0

    def _read_mappings(self) -> None:
        if self._knows_all_mappings or time.monotonic() < self._read_mappings_at:
            return
        self._read_mappings_at = time.monotonic() + READ_MAPPINGS_EVERY_SECONDS
        for name, cursor in self._cursors.items():
            rows = self.database.run("list_foreign_mappings", mappings=self._mappings[name])
            cursor.excluded = [row["mapping"] for row in rows]

    # -- slots of limited gateways --

    def _has_slot(self, row: DictRow, holder: str) -> bool:
        """`row` is of choose_route. A slot above a limit that has become lower is of no use."""
        return bool(row["has_slot"]) and self._slot == (row["route"], holder)

    def _take_slot(self, row: DictRow, holder: str) -> bool:
        if self._has_slot(row, holder):
            return True
        self.release_slot()
        server = holder.rpartition("/")[0]
        if self.database.one("take_slot", gateway=row["route"], holder=holder, server=server) is None:
            return False
        self._slot = (row["route"], holder)
        return True

    def _release_slot_except(self, gateway: str | None) -> None:
        if self._slot is not None and self._slot[0] != gateway:
            self.release_slot()

    def release_slot(self) -> None:
        """The connection is closed first: the slot says that a call may be under way."""
        if self._slot is not None:
            gateway, holder = self._slot
            self._close(gateway)
            self.database.run("release_slots", holder=holder)
            self._slot = None


def peek(database: Database, cursors: Mapping[str, ClaimCursor], holder: str) -> list[DictRow]:
    """The gateways, those with a job first, in the claim's order of their first jobs."""
    starts = {name: cursor.peek_start for name, cursor in cursors.items()}
    routes = [{**start.parameters, "route": name, "excluded": cursors[name].excluded} for name, start in starts.items()]
    rows = database.run_prepared(("choose_route", {"holder": holder, "routes": json.dumps(routes)}))
    for row in rows:
        if row["entries"] is not None:
            cursors[row["route"]].record_peek(starts[row["route"]], row)
    return rows


def seconds_claimable(database: Database, cursors: Mapping[str, ClaimCursor], holder: str) -> float | None:
    """For how long a job has been claimable; None when there is none."""
    waited = [row["waited"] for row in peek(database, cursors, holder) if row["waited"] is not None]
    return max(waited, default=None)
