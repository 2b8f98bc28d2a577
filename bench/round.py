"""One round: a contender works off jobs queued before the clock starts; what it did is checked from outside."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.contender import Contender, Place
from bench.documents import check, lay_out
from bench.gateway import Gateway
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds, running

START_WITHIN_SECONDS = 40.0  # until every worker has its first job
STALLS_AFTER_SECONDS = 60.0  # without another request


@dataclass(frozen=True)
class Round:
    jobs: int
    seconds: float  # from when every worker had a job to the last completion in the database
    cpu: float  # s of the contender's processes
    postgres_cpu: float
    other_cpu: float = 0.0  # of Redis, for the contender that needs it

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    @property
    def cpu_per_job(self) -> float:
        return (self.cpu + self.postgres_cpu + self.other_cpu) / self.jobs


@contextmanager
def place_for(contender: Contender, postgres: DurablePostgres, gateway: Gateway) -> Iterator[Place]:
    """A database with the contender's tables, and empty directories, which are removed when all rounds are over.

    Not before: for half a minute, an ext4 without a journal walks over each inode that has been given up, for each file
    that it makes. What one round removed would cost the next more than its own work.
    """
    home = Path(tempfile.mkdtemp(prefix="round-", dir=postgres.files))
    try:
        with postgres.database("bench_" + re.sub(r"\W+", "_", contender.name.lower())) as url:
            place = Place(url, gateway.url, home)
            place.uploads.mkdir()
            place.results.mkdir()
            with contender.serving(place) as pids:
                place.other_servers.extend(pids)
                contender.prepare(place)
                yield place
    except Exception as error:
        if (log := home / "log").exists():
            error.add_note(f"the log of {contender.name} ends:\n{log.read_text(errors='replace')[-2000:]}")
        raise


@contextmanager
def working(contender: Contender, place: Place, workers: int, **settings: str) -> Iterator[list[int]]:
    """Its processes; the pids of those that were started."""
    with ExitStack() as started:
        environment = place.environment(**contender.settings(place, workers), **settings)
        yield [
            started.enter_context(running(command, environment, place.log)).pid
            for command in contender.commands(workers)
        ]


def run_round(
    contender: Contender, postgres: DurablePostgres, gateway: Gateway, jobs: int, workers: int, delay: float = 0.0
) -> Round:
    """The gateway holds the first answers back until every worker waits for one: start-up is in nobody's figure."""
    jobs = max(jobs, contender.fewest_jobs)
    with place_for(contender, postgres, gateway) as place:
        ids = lay_out(place.uploads, jobs)
        contender.enqueue(place, ids)
        postgres.settle()
        gateway.reset(hold=True, delay=delay)
        with working(contender, place, workers) as pids:
            gateway.wait_for(workers, START_WITHIN_SECONDS)
            assert postgres.pid
            measured = pids, [postgres.pid], place.other_servers
            before = [cpu_seconds(*roots) for roots in measured]
            began = gateway.open()
            ended = wait_until_done(contender, place, gateway, jobs)
            spent = [cpu_seconds(*roots) - then for roots, then in zip(measured, before, strict=True)]
        contender.fetch_results(place)
        check(ids, (seen.job_id for seen in gateway.seen()), place.results)
    return Round(jobs, ended - began, *spent)


def wait_until_done(contender: Contender, place: Place, gateway: Gateway, jobs: int) -> float:
    """Looks seldom while there is much to do, and leaves the database alone until the last request has been seen."""
    count, began = 0, time.monotonic()
    changed = began
    while count < jobs or contender.completed(place) < jobs:
        now = time.monotonic()
        if now - changed > STALLS_AFTER_SECONDS:
            raise TimeoutError(f"{contender.name} stopped at request {count} of {jobs}")
        time_left = (now - began) * (jobs - count) / max(1, count)
        time.sleep(min(0.25, max(0.005, time_left / 2)))
        if (seen := gateway.count()) != count:
            count, changed = seen, now
    return time.monotonic()
