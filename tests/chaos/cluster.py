"""What the storm blows on: two hosts, each on a network of its own, one PostgreSQL, one gateway, one disk."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from psycopg.rows import dict_row

from tests.chaos.disk import CannotMount, SmallDisk
from tests.chaos.faulty_gateway import FaultyGateway
from tests.chaos.length import STORE
from tests.chaos.network import Network
from tests.chaos.plan import HEARTBEAT_TIMEOUT_SECONDS, HOSTS, LEASE_TTL_SECONDS, WORKERS
from tests.chaos.storage import ChaosStorage, chaos_storage
from tests.conftest import Dirs, migrate
from tests.newer_release import NewerRelease
from tests.postgres_processes import thawed_in_the_end
from tests.processes import Process
from tests.stalling_standby import StallingStandby
from tests.waiting import Row

#: The jobs of a storm are too slow for batches. One host forms them all the same, with up to eight jobs, and has to
#: settle most of them while a slow job of theirs is being converted.
LONG_BATCHES, LONG_BATCHES_HOST = (sys.executable, "-m", "tests.long_batches_worker"), 1
MAX_ATTEMPTS = 20  # so many that no storm uses them up
DISK_MB = 128
SETTINGS = {
    "WORKER_CONCURRENCY": str(WORKERS),
    "WORKER_LEASE_TTL_SEC": str(LEASE_TTL_SECONDS),
    "WORKER_LEASE_EXTEND_SEC": "2",
    "WORKER_HEARTBEAT_SEC": "1",
    "WORKER_HEARTBEAT_TIMEOUT_SEC": str(HEARTBEAT_TIMEOUT_SECONDS),
    "WORKER_POLL_INTERVAL_MS": "500",
    "WORKER_SHUTDOWN_GRACE_SEC": "10",
    "GATEWAY_TIMEOUT_MS": "8000",
    "RETRY_MAX_ATTEMPTS": str(MAX_ATTEMPTS),
    "RETRY_BASE_DELAY_MS": "10",
    "RETRY_JITTER_MAX_MS": "50",
    "CIRCUIT_COOLDOWN_MS": "500",
    "RESULTS_MIN_FREE_MB": "1",
    "LOG_FORMAT": "json",
}


class Host:
    """One supervisor at a time. What is paused stays known here until it goes on."""

    def __init__(self, environment: Mapping[str, str], network: Network, program: Sequence[str] | None = None) -> None:
        self.network = network
        self._environment, self._program = environment, program
        self.started: list[Process] = []
        self.paused: set[int] = set()

    @property
    def process(self) -> Process:
        return self.started[-1]

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and self.process.popen.poll() is None

    def start(self) -> None:
        self.started.append(Process("worker", "run", environment=self._environment, program=self._program))

    def workers(self) -> list[int]:
        """Oldest first, without those that are paused."""
        return sorted(set(self.process.children()) - self.paused) if self.is_alive else []

    def slot_of(self, worker: int) -> str:
        starts = self.process.events("worker_start", pid=worker)
        return str(starts[-1]["worker"]).rpartition("/")[2] if starts else ""

    def pause(self, pids: list[int]) -> None:
        for pid in pids:
            if send(pid, signal.SIGSTOP):
                self.paused.add(pid)

    def go_on(self, pids: list[int]) -> None:
        """Those that were killed meanwhile are gone: only children of this test's own are signalled."""
        family = {pid for process in self.started for pid in process.family()}
        for pid in pids:
            if pid in family:
                send(pid, signal.SIGCONT)
            self.paused.discard(pid)

    def end(self) -> None:
        for process in self.started:
            process.end()

    def kill(self) -> None:
        self.process.send(signal.SIGKILL)
        self.process.wait()


def send(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


@dataclass
class Cluster:
    postgres: EmbeddedPostgres
    gateway: FaultyGateway
    dirs: Dirs
    standby: StallingStandby
    release: NewerRelease  # a later one, whose migrations the storm applies
    disk: SmallDisk | None
    no_disk: str = ""  # why there is none
    storage: ChaosStorage | None = None  # None: the results are in `dirs`
    hosts: list[Host] = field(default_factory=list)

    @property
    def gateways_file(self) -> Path:
        return self.dirs.uploads.with_name("gateways.toml")

    def environment(self, network: Network | None = None) -> dict[str, str]:
        """For a process on a host behind `network`, or beside the database."""
        port = network.port if network else self.postgres.port
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept,
            **SETTINGS,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TEST_SETTLE_WITHIN_SECONDS": "0.5",
            "DATABASE_URL": f"postgresql://{self.postgres.user}@127.0.0.1:{port}/postgres",
            "GATEWAYS_FILE": str(self.gateways_file),
            "UPLOADS_DIR": str(self.dirs.uploads),
            "RESULTS_DIR": str(self.dirs.results),
            **(self.storage.environment if self.storage else {}),
        }

    def connect(self) -> psycopg.Connection[Row]:
        """An observer's own way to the database, past those networks."""
        return psycopg.connect(
            self.postgres.url(), autocommit=True, row_factory=dict_row, application_name="observer", connect_timeout=5
        )

    def host_of(self, server_pid: int) -> int | None:
        for number, host in enumerate(self.hosts):
            if server_pid in {process.pid for process in host.started}:
                return number
        return None


@contextlib.contextmanager
def a_cluster(folder: Path, seed: int) -> Iterator[Cluster]:
    """Ready for work; at its end nothing of it is left, whatever happened."""
    dirs = Dirs(folder / "uploads", folder / "results")
    dirs.uploads.mkdir()
    dirs.results.mkdir()
    with contextlib.ExitStack() as stack:
        disk, no_disk = None, ""
        try:
            disk = stack.enter_context(SmallDisk(dirs.results, DISK_MB))
        except CannotMount as reason:
            no_disk = str(reason)
        postgres = stack.enter_context(EmbeddedPostgres(port=0))
        stack.enter_context(thawed_in_the_end(postgres))
        migrate(postgres.url())
        standby = stack.enter_context(StallingStandby(postgres))
        gateway = stack.enter_context(FaultyGateway(seed))
        release = NewerRelease(folder / "later release")
        storage = stack.enter_context(chaos_storage()) if STORE == "s3" else None
        cluster = Cluster(postgres, gateway, dirs, standby, release, disk, no_disk, storage)
        cluster.gateways_file.write_text(gateway.gateways_file())
        for number in range(HOSTS):
            network = stack.enter_context(Network(postgres.port))
            host = Host(cluster.environment(network), network, LONG_BATCHES if number == LONG_BATCHES_HOST else None)
            cluster.hosts.append(host)
            host.start()
            stack.callback(host.end)
        for host in cluster.hosts:
            host.process.wait_for_event("ready")
        yield cluster
