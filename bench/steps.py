"""Where a job's time goes: CPU of a worker and of PostgreSQL's backend, step by step, with one worker alone.

    python -m bench.steps

The steps are those of a worker in the middle of a queue, and the code is its own. Each is the median of turns of 50
jobs. What `bench.throughput` shows above their sum is the loop around them, and four workers in each other's way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

from convertq.queue.breaker import Breaker
from convertq.queue.claim import ClaimCursor, NextClaim
from convertq.queue.completion import Completion, FinishedJob
from convertq.queue.config import Config
from convertq.queue.database.database import Database
from convertq.queue.job import ClaimedJob
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log, set_up_logging
from convertq.queue.outcome import Completed
from convertq.queue.store import open_store
from convertq.queue.store.protocol import PendingResult
from convertq.worker.gateway.client import GatewayClient
from convertq.worker.gateway.route import routes_to_gateways
from convertq.worker.loop.attempt import Attempt

from bench.big_table import SERVER, Rows, big_table
from bench.documents import PDF_BYTES
from bench.gateway import null_gateway
from bench.postgres import DurablePostgres

TURNS, JOBS = 30, 50
HOLDER = f"{SERVER}/1"


class Costs:
    """Milliseconds of CPU a job, by step: the worker's and the backend's."""

    def __init__(self, backend: int) -> None:
        self._backend = backend
        self.steps: dict[str, list[tuple[float, float]]] = {}
        self._turn: dict[str, list[float]] = {}

    def step(self, name: str, action: Callable[[], object]) -> None:
        server_before = cpu_milliseconds(self._backend)
        own_before = time.process_time()  # the last before and the first after: the other one reads a file
        action()
        own, server = (time.process_time() - own_before) * 1000, cpu_milliseconds(self._backend) - server_before
        spent = self._turn.setdefault(name, [0.0, 0.0])
        spent[0], spent[1] = spent[0] + own, spent[1] + server

    def end_turn(self, *, counts: bool) -> None:
        for name, (own, server) in self._turn.items() if counts else ():
            self.steps.setdefault(name, []).append((own / JOBS, server / JOBS))
        self._turn.clear()

    def table(self) -> str:
        lines = ["| step | worker, ms | PostgreSQL, ms |", "|---|---:|---:|"]
        total = [0.0, 0.0]
        for name, turns in self.steps.items():
            own, server = (median(turn[which] for turn in turns) for which in (0, 1))
            total = [total[0] + own, total[1] + server]
            lines.append(f"| {name} | {own:.2f} | {server:.2f} |")
        return "\n".join([*lines, f"| all of it | {total[0]:.2f} | {total[1]:.2f} |"])


def cpu_milliseconds(pid: int) -> float:
    """To the nanosecond, unlike the ticks in stat; of a process that has just gone to sleep, for it is told then."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


class OneWorker:
    def __init__(self, config: Config) -> None:
        database = Database.open(config.database, "bench", claims=True)
        self._queue, self._next_claim = (
            JobQueue(database, config),
            NextClaim(ClaimCursor(database, config), SERVER, HOLDER),
        )
        self._store, self._uploads = open_store(config), config.uploads_dir
        self._client = GatewayClient(routes_to_gateways(config)["default"])
        self._log = Log(config, SERVER, HOLDER)
        self.costs = Costs(self._queue.database.connection.info.backend_pid)
        self._breaker = Breaker(config, self._log)
        job = self._next_claim.cursor.claim_job(SERVER, HOLDER).job
        assert job is not None
        self._job = job

    def convert_one(self) -> None:
        """As Worker and Settlement do it, but for the order of the log lines."""
        job, step = self._job, self.costs.step
        (self._uploads / f"{job.name}.pdf").write_bytes(b"%PDF-" + b"x" * (PDF_BYTES - 5))
        attempt = Attempt(self._client, self._store, job)
        step("call the gateway, check and sync the file", attempt.convert)
        done = Completed(attempt.result.location, attempt.result, attempt.call.status, attempt.call.milliseconds)
        finished = [FinishedJob(job, done)]
        transaction = self._queue.completing(finished, self._breaker, self._next_claim)
        step("complete and claim the next", lambda: self._complete(transaction))
        step("put the file in place", lambda: self._publish(attempt.result))
        step("commit", lambda: self._commit(transaction))
        step("four log lines", lambda: self._say(job))

    def _publish(self, result: PendingResult) -> None:
        result.publish()
        self._store.sync_results()
        result.discard()

    def _complete(self, transaction: contextlib.AbstractContextManager[Completion]) -> None:
        """The block of the transaction is measured apart from its two ends."""
        self._completion = transaction.__enter__()
        assert self._completion.leased

    def _commit(self, transaction: contextlib.AbstractContextManager[Completion]) -> None:
        transaction.__exit__(None, None, None)
        assert self._completion.claim is not None
        assert self._completion.claim.job is not None
        self._job = self._completion.claim.job

    def _say(self, job: ClaimedJob) -> None:
        known = {"job_id": job.name, "attempt": job.attempt}
        self._log("claim", **known, status="processing", queued_ms=job.queued_ms, breaker="closed")
        self._log("start", **known, status="processing")
        self._log("gateway_ok", **known, status="processing", gateway_ms=1, gateway_status=200)
        self._log("complete", **known, status="complete", duration_ms=2, gateway_ms=1, gateway_status=200)


def measure(config: Config) -> Costs:
    open_store(config).make_ready()
    set_up_logging(config)
    worker = OneWorker(config)
    for turn in range(1 + TURNS):
        for _ in range(JOBS):
            worker.convert_one()
        worker.costs.end_turn(counts=turn > 0)  # from then on connections, caches and plans are as after a while
    return worker.costs


def main() -> None:
    rows = Rows(queued=(TURNS + 1) * JOBS + 1)
    with DurablePostgres() as postgres, null_gateway() as gateway, big_table(postgres, "steps", rows) as database:
        uploads, results = postgres.files / "uploads", postgres.files / "results"
        config = replace(database, gateway_url=gateway.url, uploads_dir=uploads, results_dir=results)
        with open(postgres.files / "log", "w") as log, contextlib.redirect_stderr(log):
            costs = measure(config)
    print(f"\n{costs.table()}")


if __name__ == "__main__":
    main()
