"""The faults themselves: how each is begun, on what, and how it is undone."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import psycopg

from tests.chaos.cluster import Cluster, Host, send
from tests.chaos.database_faults import DatabaseFaults, Undo, nothing
from tests.chaos.network import Mode, Network
from tests.chaos.plan import Fault, Kind

LOCKED = ("processing", "queued", "uploaded", "processing")  # by the fault's slot: a row in this state


@dataclass
class Injected:
    """A fault that took place, by the clock of this machine, which is the database's too."""

    fault: Fault
    began: float
    ended: float = 0.0  # when it was undone; for one that does not last, when it began
    running_jobs: list[UUID] = field(default_factory=list)  # jobs that its victims were working on


class Faults:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.database = DatabaseFaults(cluster)
        self.skipped: dict[Kind, str] = {}  # kinds that this machine does not allow, and why

    def begin(self, fault: Fault) -> tuple[Injected, Undo | None] | None:
        """None when there is nothing to hit: its victim is down, paused or cut off already."""
        host = self._cluster.hosts[fault.host]
        injected = Injected(fault, time.time())
        match fault.kind:
            case Kind.KILL_WORKER | Kind.PAUSE_WORKER | Kind.PAUSE_WORKER_PAST_LEASE:
                undo = self._hit_worker(host, injected)
            case Kind.KILL_SUPERVISOR:
                undo = self._kill_supervisor(host, injected)
            case Kind.PAUSE_SUPERVISOR | Kind.PAUSE_HOST:
                undo = self._pause_supervisor(host, injected)
            case Kind.RESTART_FAST | Kind.RESTART_IMMEDIATE | Kind.OUTAGE | Kind.FREEZE | Kind.STALL_STANDBY:
                undo = self.database.take_away(fault.kind)
            case Kind.END_BACKENDS:
                undo = nothing if self.database.end_backends() else None
            case Kind.LOCK_ROW:
                undo = self.database.lock_row(LOCKED[fault.slot])
            case Kind.MIGRATE:
                undo = self.database.migrate()
            case Kind.CUT:
                undo = nothing if host.network.mode == "pass" and host.network.cut() else None
            case Kind.REFUSE | Kind.STALL | Kind.SWALLOW:
                undo = self._cut_off(host, fault.kind)
            case Kind.SWALLOW_ALL:
                undo = self._cut_everybody_off()
            case Kind.FILL_DISK:
                undo = self._fill_disk()
            case Kind.GATEWAY_DOWN:
                undo = self._stop_gateway()
            case Kind.KILL_STORAGE | Kind.FREEZE_STORAGE | Kind.REFUSE_STORAGE:
                storage = self._cluster.storage
                undo = storage.begin(fault.kind) if storage else None
        if undo is None:
            return None
        injected.ended = time.time()
        return injected, None if undo is nothing else undo

    # -- processes --

    def _hit_worker(self, host: Host, injected: Injected) -> Undo | None:
        workers = host.workers()
        if not workers or host.process.pid in host.paused:
            return None
        first = injected.fault.slot % len(workers)
        for worker in [*workers[first:], *workers[:first]]:  # the first that has a job, or else the last
            injected.running_jobs = self._jobs_of(host.process.pid, host.slot_of(worker))
            if injected.running_jobs:
                break
        injected.began = time.time()
        if injected.fault.kind is Kind.KILL_WORKER:
            send(worker, signal.SIGKILL)
            return nothing
        host.pause([worker])
        return lambda: host.go_on([worker])

    def _kill_supervisor(self, host: Host, injected: Injected) -> Undo | None:
        if not host.is_alive:
            return None
        injected.running_jobs = self._jobs_of(host.process.pid)
        injected.began = time.time()
        host.kill()
        return lambda: None if host.is_alive else host.start()

    def _pause_supervisor(self, host: Host, injected: Injected) -> Undo | None:
        if not host.is_alive or host.process.pid in host.paused:
            return None
        victims = [host.process.pid]
        if injected.fault.kind is Kind.PAUSE_HOST:
            victims += host.workers()
            injected.running_jobs = self._jobs_of(host.process.pid)
            injected.began = time.time()
        host.pause(victims)
        return lambda: host.go_on(victims)

    def _jobs_of(self, supervisor: int, slot: str = "%") -> list[UUID]:
        """None without the database: nobody can tell."""
        if self.database.is_away:
            return []
        try:
            with self._cluster.connect() as conn:
                rows = conn.execute(
                    "SELECT id FROM jobs WHERE status = 'processing' AND leased_by LIKE %s",
                    [f"%:{supervisor}:%/{slot}"],
                ).fetchall()
        except psycopg.Error:
            return []
        return [row["id"] for row in rows]

    # -- network, disk, gateway --

    @staticmethod
    def _cut_off(host: Host, kind: Kind) -> Undo | None:
        network = host.network
        if network.mode != "pass":
            return None
        match kind:
            case Kind.REFUSE:
                network.set_mode("refuse")
                network.cut()
            case Kind.STALL:
                network.set_mode("stall")
            case _:
                network.set_mode("swallow")
        return lambda: network.set_mode("pass")

    def _cut_everybody_off(self) -> Undo | None:
        networks = [host.network for host in self._cluster.hosts]
        if any(network.mode != "pass" for network in networks):
            return None
        set_mode_of(networks, "swallow")
        return partial(set_mode_of, networks, "pass")

    def _fill_disk(self) -> Undo | None:
        disk = self._cluster.disk
        if disk is None:
            self.skipped[Kind.FILL_DISK] = self._cluster.no_disk
            return None
        disk.fill()
        return disk.free

    def _stop_gateway(self) -> Undo | None:
        self._cluster.gateway.stop()
        return self._cluster.gateway.start


def set_mode_of(networks: Sequence[Network], mode: Mode) -> None:
    for network in networks:
        network.set_mode(mode)
