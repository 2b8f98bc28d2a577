"""A gateway with a limit: the whole cluster never calls it more often at a time, whatever dies."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

from tests.chaos.faulty_gateway import is_closed
from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import XML_TYPE, Behaviour, Exchange
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

MAX_CALLS = 7
CALL_SECONDS = 0.3


class CallCounter:
    """Counts the calls that are under way; one whose client is gone has ended, noticed by its thread or not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.most = self.reached = 0

    def behaviour(self) -> Behaviour:
        return Behaviour("counted", self._answer)

    def _answer(self, exchange: Exchange) -> None:
        connection = exchange.handler.connection
        with self._lock:
            self._open = {one for one in self._open if not is_closed(one)} | {connection}
            self.most = max(self.most, len(self._open))
            self.reached += len(self._open) == MAX_CALLS
        try:
            if select.select([connection], [], [], CALL_SECONDS)[0]:
                exchange.hang_up()
                return
        finally:
            with self._lock:
                self._open.discard(connection)
        exchange.answer(200, XML_TYPE, exchange.xml)


def limited(folder: Path, gateway: StandInGateway, name: str = "gateways.toml", limit: int = MAX_CALLS) -> Path:
    path = folder / name
    path.write_text(
        f'[gateways.slow]\nurl = "{gateway.url}"\nmappings = ["pt_simon_invoice_v1"]\nmax_calls = {limit}\n'
    )
    return path


def test_no_more_calls_than_allowed_are_under_way_while_workers_and_hosts_die(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, tmp_path: Path
) -> None:
    counter = CallCounter()
    gateway.default = counter.behaviour()
    settings = {
        "WORKER_CONCURRENCY": 8, "WORKER_HEARTBEAT_SEC": 1, "WORKER_HEARTBEAT_TIMEOUT_SEC": 8,
        "RETRY_MAX_ATTEMPTS": 9, "GATEWAYS_FILE": limited(tmp_path, gateway),
    }  # fmt: skip
    # The smallest limit of the active servers counts, for every server.
    generous = limited(tmp_path, gateway, "generous.toml", 9)
    hosts = [supervisor(**settings), supervisor(**settings), supervisor(**settings | {"GATEWAYS_FILE": generous})]
    jobs = documents.put_many(100)
    eventually(lambda: counter.reached > 5, what="the limit is used")

    job = documents.conn.execute("SELECT leased_by FROM jobs WHERE status = 'processing' LIMIT 1").fetchone()
    assert job is not None
    lucky = next(host for host in hosts if f":{host.pid}:" in job["leased_by"])
    os.kill(int(lucky.events("worker_start", worker=job["leased_by"])[-1]["pid"]), signal.SIGKILL)
    killed = next(host for host in hosts if host is not lucky)
    killed.send(signal.SIGKILL)  # its workers die with it
    eventually(lambda: not slots_of(documents, killed.pid), what="the slots of a dead server are freed")
    jobs += documents.put_many(100)
    reached = counter.reached
    eventually(lambda: counter.reached > reached + 5, what="the limit is used again")

    documents.wait_for_all(jobs, "complete")
    assert counter.most == MAX_CALLS
    eventually(lambda: not slots_of(documents, lucky.pid), what="an idle worker holds no slot")


def slots_of(documents: Documents, pid: int) -> int:
    row = documents.conn.execute("SELECT count(*) AS n FROM gateway_slots WHERE holder LIKE %s", [f"%:{pid}:%"])
    found = row.fetchone()
    assert found is not None
    return int(found["n"])


def test_a_freed_slot_wakes_a_worker_that_waits_for_it(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, tmp_path: Path
) -> None:
    """Both poll once a minute: only the wake-up lets the second host go on."""
    release = threading.Event()

    def hold(exchange: Exchange) -> None:
        release.wait(60)
        exchange.answer(200, XML_TYPE, exchange.xml)

    gateway.script(Behaviour("held", hold))
    settings = {
        "WORKER_CONCURRENCY": 1, "WORKER_POLL_INTERVAL_MS": 60_000, "WORKER_SHUTDOWN_GRACE_SEC": 30,
        "GATEWAYS_FILE": limited(tmp_path, gateway, limit=1), "GATEWAY_TIMEOUT_MS": 90_000,
    }  # fmt: skip
    first = supervisor(**settings)
    job = documents.put()
    gateway.wait_for(1)
    second = supervisor(**settings)
    waiting = documents.put(b"%PDF-1.4\n%% other\n")
    second.wait_for_event("ready")
    first.send(signal.SIGTERM)  # it finishes its job, and claims no more
    eventually(lambda: any(row["status"] == "draining" for row in documents.servers()), what="it is draining")
    began = time.monotonic()
    release.set()
    documents.wait_for(job, "complete")
    documents.wait_for(waiting, "complete")
    assert time.monotonic() - began < 30  # a promise: by polling it would be a minute
    assert documents.row(waiting)["attempt_count"] == 1


def test_an_adaptive_limit_is_found_by_two_hosts_together(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, tmp_path: Path
) -> None:
    """The gateway refuses more than three calls at a time."""
    lock, running, reached = threading.Lock(), [0], [0]

    def answer(exchange: Exchange) -> None:
        with lock:
            running[0] += 1
            reached[0] = max(reached[0], running[0])
            is_full = running[0] > 3
        time.sleep(0.02)
        with lock:
            running[0] -= 1
        exchange.answer(503 if is_full else 200, XML_TYPE, exchange.xml)

    gateway.default = Behaviour("small", answer)
    file = tmp_path / "auto.toml"
    file.write_text(
        f'[gateways.slow]\nurl = "{gateway.url}"\nmappings = ["pt_simon_invoice_v1"]\nmax_calls = "auto"\n'
        "busy_status = [503]\n"
    )
    settings = {"WORKER_CONCURRENCY": 3, "GATEWAYS_FILE": file, "RETRY_BASE_DELAY_MS": 1, "RETRY_JITTER_MAX_MS": 1}
    for _ in range(2):
        supervisor(**settings)
    jobs = documents.put_many(150)

    def is_found() -> bool:
        if documents.conn.execute("SELECT FROM jobs WHERE status = 'queued'").rowcount < 50:
            jobs.extend(documents.put_many(50))
        row = limit_row(documents)
        return row is not None and row["reason"] == "refused" and 1 <= row["max_calls"] <= 3

    eventually(is_found, what="a limit that is not above what the gateway takes")
    row = limit_row(documents)
    assert row is not None
    assert row["most_calls"] == 6
    documents.wait_for_all(jobs, "complete")
    assert reached[0] > 3


def limit_row(documents: Documents) -> dict[str, Any] | None:
    return documents.conn.execute("SELECT max_calls, most_calls, reason FROM gateway_limits").fetchone()
