"""The course of a storm: begins each fault at its time, undoes it, and in the end waits for calm."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from functools import partial

import psycopg

from tests.chaos.client import Client
from tests.chaos.cluster import Cluster
from tests.chaos.database_faults import Undo
from tests.chaos.faults import Faults, Injected
from tests.chaos.faulty_gateway import POISON
from tests.chaos.plan import Fault, Kind
from tests.waiting import eventually

SETTLES_WITHIN_SECONDS = 180.0  # after the last fault
SINGLE = {Kind.FILL_DISK, Kind.GATEWAY_DOWN}  # there is one of each: a second fault waits for no first
#: These strike everybody and need the database for themselves: one that finds it away comes a little later.
PATIENT = {
    Kind.RESTART_FAST,
    Kind.RESTART_IMMEDIATE,
    Kind.OUTAGE,
    Kind.FREEZE,
    Kind.SWALLOW_ALL,
    Kind.STALL_STANDBY,
    Kind.LOCK_ROW,
    Kind.MIGRATE,
}
TRIES_EVERY_SECONDS = 0.5


class Storm:
    def __init__(self, cluster: Cluster, client: Client) -> None:
        self._cluster, self._client = cluster, client
        self.faults = Faults(cluster)
        self.injected: list[Injected] = []
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._under_way: set[Kind] = set()
        self._over_at = 0.0
        self.migrations = 0

    def blow(self, plan: list[Fault], seconds: float) -> None:
        """All on the calling thread, which must be the main one; whatever still lasts at the end is undone."""
        start = time.monotonic()
        self._over_at = start + seconds
        for fault in plan:
            self._at(start + fault.at, partial(self._begin, fault))
        while self._due and self._due[0][0] < self._over_at:
            at, _, act = heapq.heappop(self._due)
            if self._client.ended.wait(max(0.0, at - time.monotonic())):
                break  # it has failed, which stop() says
            act()
        while self._due:
            heapq.heappop(self._due)[2]()

    def calm_down(self) -> None:
        """Every job terminal, and nothing failed but what is poison."""
        self._client.submits = False
        self._cluster.gateway.calm = True
        self._revive()
        self.migrations = self.faults.database.finish_migrations()
        eventually(self._is_settled, SETTLES_WITHIN_SECONDS, "every job terminal")
        eventually(self._has_buried_the_dead, what="no killed supervisor still called active")
        self._client.stop()

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at, next(self._order), act))

    def _begin(self, fault: Fault) -> None:
        self.faults.database.repeat_failed_migration()
        if fault.kind in self._under_way & SINGLE:
            return
        begun = self.faults.begin(fault)
        if begun is None:
            again_at = time.monotonic() + TRIES_EVERY_SECONDS
            if fault.kind in PATIENT and again_at < self._over_at:
                self._at(again_at, partial(self._begin, fault))
            return
        injected, undo = begun
        self.injected.append(injected)
        print(f"  {time.strftime('%H:%M:%S')} host {fault.host}: {fault.kind}, {fault.seconds:.1f} s", flush=True)
        if undo:
            self._under_way.add(fault.kind)
            self._at(time.monotonic() + fault.seconds, partial(self._end, injected, undo))

    def _end(self, injected: Injected, undo: Undo) -> None:
        undo()
        self._under_way.discard(injected.fault.kind)
        injected.ended = time.time()

    def _revive(self) -> None:
        for host in self._cluster.hosts:
            host.go_on(list(host.paused))
            if not host.is_alive:
                host.start()

    def _is_settled(self) -> bool:
        if self._client.ended.is_set():
            raise AssertionError("the client has failed") from self._client.failure
        return self._count(
            "SELECT count(*) AS n FROM jobs WHERE status NOT IN ('complete', 'failed', 'cancelled')"
            f" OR status = 'failed' AND mapping <> '{POISON}'"
        ) == 0  # fmt: skip

    def _has_buried_the_dead(self) -> bool:
        return self._count("SELECT count(*) AS n FROM servers WHERE status = 'active'") == len(self._cluster.hosts)

    def _count(self, query: str) -> int:
        try:
            with self._cluster.connect() as conn:
                row = conn.execute(query.encode()).fetchone()
        except psycopg.Error:
            return -1
        assert row
        return int(row["n"])
