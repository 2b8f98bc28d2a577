"""How often a job is done by the time that was estimated for it, with an outage of the gateway and a pause.

    python -m bench.estimates              # BENCH_ESTIMATED_JOBS=5000

Each job is asked for its estimate right after it was queued, as the API does it. Jobs come somewhat faster than eight
workers convert them, so the queue grows to more than a thousand jobs.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg
from convertq.queue.config import Config, read_config
from convertq.queue.database.database import Database
from convertq.queue.estimate_upkeep import get_covered_ratio
from convertq.queue.estimates import Estimate, estimate_jobs
from convertq.queue.pauses import Scope, end_pauses, start_pause
from convertq.queue.queue_events import Operator

from bench.contender import Place
from bench.contenders import Convertq
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.report import Row, table
from bench.round import place_for, working

JOBS = int(os.environ.get("BENCH_ESTIMATED_JOBS", "5000"))
WORKERS = 8
CALL_SECONDS, SECONDS_PER_MEGABYTE, CALL_SPREAD = 0.02, 3.0, 0.3
MEDIAN_BYTES, SIZE_SPREAD, MOST_BYTES = 40_000, 0.9, 1_000_000
SIZES = 64  # different files
JOBS_PER_SECOND = 32.0
BURST_EVERY, BURST_JOBS = 600, 120  # jobs
INTERRUPTED_SECONDS = 10.0
SETTINGS = {"CIRCUIT_COOLDOWN_MS": "3000", "RETRY_BASE_DELAY_MS": "2000", "RETRY_JITTER_MAX_MS": "2000"}
DONE_WITHIN_SECONDS = 300.0
SUBMIT = (
    "INSERT INTO jobs (id, owner_session_id, bytes, sha256, status, upload_path)"
    " VALUES (%s, 'bench', %s, %s, 'queued', %s)"
)
ENDS = "SELECT id, status, completed_at, queued_at FROM jobs"
LEAST, MOST = 0.85, 0.95


@dataclass(frozen=True)
class Told:
    """What was estimated for a job, and when it was done."""

    estimate: Estimate
    queued_at: datetime
    completed_at: datetime

    @property
    def is_covered(self) -> bool:
        return self.completed_at <= self.estimate.done_by

    @property
    def is_early(self) -> bool:
        return self.completed_at <= self.estimate.done_at

    @property
    def seconds(self) -> tuple[float, float]:
        """It took, and was to take at most."""
        return (
            (self.completed_at - self.queued_at).total_seconds(),
            (self.estimate.done_by - self.queued_at).total_seconds(),
        )


def sources(place: Place) -> list[tuple[str, int]]:
    """Files of different sizes, each of which is the source of many jobs."""
    found = []
    for number in range(SIZES):
        size = min(int(MEDIAN_BYTES * random.lognormvariate(0, SIZE_SPREAD)), MOST_BYTES)
        path = place.uploads / f"source-{number}"
        path.write_bytes(b"%PDF-1.7\n" + os.urandom(size) + b"%%EOF\n")
        found.append((str(path), path.stat().st_size))
    return found


def arrivals(jobs: int) -> Iterator[float]:
    """The pause before each job: random ones, and none within a burst."""
    for number in range(jobs):
        yield 0.0 if number % BURST_EVERY < BURST_JOBS else random.expovariate(JOBS_PER_SECOND)


class Interruption(NamedTuple):
    begin: Callable[[], object]
    end: Callable[[], object]

    def happen(self) -> None:
        self.begin()
        threading.Timer(INTERRUPTED_SECONDS, self.end).start()


def tell(place: Place, config: Config, interruptions: dict[int, Interruption]) -> dict[UUID, Estimate]:
    """Submits all jobs, and returns their estimates. An interruption begins before the job that it names."""
    told: dict[UUID, Estimate] = {}
    files, due = sources(place), time.monotonic()
    database = Database.open(config.database, "bench")
    for number, pause in enumerate(arrivals(JOBS)):
        due += pause
        time.sleep(max(due - time.monotonic(), 0))
        if number in interruptions:
            interruptions[number].happen()
        job_id, (path, size) = uuid4(), random.choice(files)
        source = place.uploads / f"{job_id}.pdf"
        os.link(path, source)
        database.connection.execute(SUBMIT, [job_id, size, job_id.hex * 2, str(source)])
        told.update(estimate_jobs(database, config, [job_id]).estimates)
    database.close()
    return told


def wait_for_ends(place: Place) -> dict[UUID, tuple[str, datetime | None, datetime]]:
    deadline = time.monotonic() + DONE_WITHIN_SECONDS
    with psycopg.connect(place.database_url, autocommit=True) as conn:
        while True:
            rows = conn.execute(ENDS).fetchall()
            if all(status in ("complete", "failed") for _, status, _, _ in rows):
                time.sleep(3)  # until a supervisor has scored the last ones
                return {job_id: (status, completed_at, queued_at) for job_id, status, completed_at, queued_at in rows}
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs are unfinished after {DONE_WITHIN_SECONDS:g} s")
            time.sleep(0.5)


def pause(config: Config) -> Interruption:
    def act(change: Callable[..., object]) -> None:
        database = Database.open(config.database, "bench")
        change(database, Scope(), Operator("bench"))
        database.close()

    return Interruption(lambda: act(start_pause), lambda: act(end_pauses))


def rows(postgres: DurablePostgres, gateway: Gateway) -> list[Row]:
    random.seed(5)
    gateway.reset(delay=CALL_SECONDS, per_megabyte=SECONDS_PER_MEGABYTE, spread=CALL_SPREAD)
    outage = Interruption(lambda: gateway.set_down(is_down=True), lambda: gateway.set_down(is_down=False))
    with place_for(Convertq(), postgres, gateway) as place:
        config = read_config(place.environment(**SETTINGS))
        with working(Convertq(), place, WORKERS, **SETTINGS):
            time.sleep(3)  # until the supervisor is registered
            told = tell(place, config, {JOBS // 3: outage, 2 * JOBS // 3: pause(config)})
            ends = wait_for_ends(place)
            database = Database.open(config.database, "bench")
            sampled = get_covered_ratio(database)
            database.close()
    gateway.reset()
    found = [
        Told(estimate, ends[job_id][2], completed_at)
        for job_id, estimate in told.items()
        if (completed_at := ends[job_id][1]) is not None
    ]
    return describe(found, sampled)


def describe(found: list[Told], sampled: float | None) -> list[Row]:
    share = sum(one.is_covered for one in found) / len(found)
    early = sum(one.is_early for one in found) / len(found)
    took, at_most = zip(*(one.seconds for one in found), strict=True)
    note = f"{len(found):,} of {JOBS:,} jobs; the others came while nothing was claimed, or failed"
    return [
        Row("jobs done by the `done_by` that was estimated when they were queued", f"{LEAST}–{MOST}",
            f"{share:.3f} ({note})", LEAST <= share <= MOST),
        Row("`convertq_estimate_covered_ratio` at the end, of a sample", f"{LEAST}–{MOST}",
            f"{sampled:.3f}", sampled is not None and LEAST <= sampled <= MOST),
        Row("jobs done by `done_at`", "", f"{early:.3f}", None),
        Row("time until a job was done, and until its `done_by`: p50", "",
            f"{median(took):.2f} and {median(at_most):.2f} s", None),
    ]  # fmt: skip


def main() -> None:
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(table(rows(postgres, gateway)))


if __name__ == "__main__":
    main()
