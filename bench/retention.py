"""`convertq cleanup` over expired jobs while workers convert new ones: how long it takes, and what the claims notice.

    python -m bench.retention        BENCH_EXPIRED=200000 jobs, each with its files and events

PostgreSQL and all files are on a disk, with fsync. Jobs come at a steady pace, before the cleanup and through it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.queue.config import read_config
from convertq.queue.database.connection import connect
from convertq.queue.database.database import Database
from convertq.queue.database.migrations import migrate
from convertq.queue.database.url import parse_database_url
from convertq.queue.store.directory import DirectoryStore
from convertq.queue.submission import SubmissionOptions, Submitter

from bench.expired_jobs import PDF, load_expired
from tests.stand_in_gateway import StandInGateway

CONVERTQ = str(Path(sys.executable).with_name("convertq"))
EXPIRED = int(os.environ.get("BENCH_EXPIRED", "200000"))
JOBS_A_SECOND = 20
ASIDE_SECONDS = 20.0  # before the cleanup and after it
DEADLINE_SECONDS = 60.0
CHECK_EVERY_SECONDS = 0.02
NOTHING = "removed 0 sources, 0 results, 0 events, 0 orphans, 0 temporary files, 0 jobs"

CLAIMS = """
SELECT extract(epoch FROM claimed.at - queued.at) * 1000
  FROM job_events AS queued JOIN job_events AS claimed USING (job_id)
 WHERE queued.event_type = 'queued' AND claimed.event_type = 'processing' AND queued.at >= %s AND queued.at < %s
"""
SESSIONS = """
SELECT wait_event_type FROM pg_stat_activity WHERE state = 'active' AND application_name LIKE 'convertq:%/%'
"""
UNFINISHED = "SELECT id, md5(jobs::text) FROM jobs WHERE owner_session_id = 'staying' ORDER BY id"
LEFT_OVER = """
SELECT count(*) FROM jobs
 WHERE owner_session_id = 'bench' AND (upload_path IS NOT NULL OR result_path IS NOT NULL)
"""
DONE = "SELECT FROM jobs WHERE owner_session_id = 'fed' AND status = 'complete'"
ALL_DONE = "SELECT WHERE NOT EXISTS (SELECT FROM jobs WHERE owner_session_id = 'fed' AND status <> 'complete')"


class Site:
    """A server and two directories on a disk, and a pool of workers."""

    def __init__(self, server: EmbeddedPostgres, home: Path, gateway_url: str) -> None:
        self.url, self.home = server.url(), home
        self.files = DirectoryStore(home / "uploads", home / "results")
        self.files.make_ready()
        self.environment = {
            **os.environ, "DATABASE_URL": self.url, "GATEWAY_URL": gateway_url, "WORKER_CONCURRENCY": "4",
            "UPLOADS_DIR": str(self.files.uploads), "RESULTS_DIR": str(self.files.results),
        }  # fmt: skip
        url = parse_database_url(self.url)
        with connect(url, "convertq:bench") as connection:
            migrate(connection, url.schema)

    def ask(self, query: LiteralString, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            return conn.execute(query, parameters).fetchall()

    def now(self) -> datetime:
        now: datetime = self.ask("SELECT clock_timestamp()")[0][0]
        return now

    @contextmanager
    def watching(self) -> Iterator[Counter[str | None]]:
        """What the workers' sessions wait for, counted look by look; None: they are at work."""
        seen: Counter[str | None] = Counter()
        enough = threading.Event()

        def watch() -> None:
            with psycopg.connect(self.url, autocommit=True) as conn:
                while not enough.wait(CHECK_EVERY_SECONDS):
                    seen.update(kind for (kind,) in conn.execute(SESSIONS))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            enough.set()
            watcher.join()

    def cleanup(self) -> tuple[str, float]:
        """What it said, and seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [CONVERTQ, "cleanup"], env=self.environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.strip(), time.monotonic() - began

    @contextmanager
    def working(self) -> Iterator[None]:
        """Workers that run, and jobs that come."""
        unread = subprocess.DEVNULL
        pool = subprocess.Popen([CONVERTQ, "worker", "run"], env=self.environment, stdout=unread, stderr=unread)
        enough = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(enough,))
        feeder.start()
        try:
            self._wait_for(DONE)
            yield
        finally:
            enough.set()
            feeder.join()
            self._wait_for(ALL_DONE)
            pool.terminate()
            pool.wait()

    def _wait_for(self, query: LiteralString) -> None:
        give_up = time.monotonic() + DEADLINE_SECONDS
        while not self.ask(query):
            assert time.monotonic() < give_up, query
            time.sleep(0.1)

    def _feed(self, enough: threading.Event) -> None:
        config = read_config(self.environment)
        submitter = Submitter(Database.open(config.database, "convertq:bench"), self.files, config)
        source, order = self.home / "new.pdf", SubmissionOptions("fed", config.mappings_allowed[0])
        started, number = time.monotonic(), 0
        while not enough.wait(max(0.0, started + number / JOBS_A_SECOND - time.monotonic())):
            source.write_bytes(PDF + str(number).encode())
            submitter.submit_file(source, order)
            number += 1


def tell_claims(site: Site, when: str, begin: datetime, end: datetime) -> None:
    waits = sorted(float(wait) for (wait,) in site.ask(CLAIMS, begin, end))
    rate = len(waits) / (end - begin).total_seconds()
    p99 = statistics.quantiles(waits, n=100)[98]
    print(f"| {when} | {rate:.1f} | {statistics.median(waits):.1f} ms | {p99:.1f} ms | {waits[-1]:.0f} ms |")


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="convertq-bench-"))
    settings = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
    with StandInGateway() as gateway, EmbeddedPostgres(settings=settings, port=0, on_disk=True) as server:
        site = Site(server, home, gateway.url)
        try:
            measure(site)
        finally:
            shutil.rmtree(home)


def measure(site: Site) -> None:
    began = time.monotonic()
    load_expired(site.url, site.files, EXPIRED)
    print(f"{EXPIRED:,} expired jobs with their files in {time.monotonic() - began:.0f} s")
    unfinished = site.ask(UNFINISHED)
    with site.working():
        begin = site.now()
        time.sleep(ASIDE_SECONDS)
        middle = site.now()
        with site.watching() as seen:
            said, seconds = site.cleanup()
        end = site.now()
        print(f"cleanup: {said}, in {seconds:.0f} s")
        print(f"workers: of {seen.total():,} statements looked at, {seen['Lock']} waited for a lock")
        again, seconds = site.cleanup()
        print(f"again:   {again}, in {seconds:.1f} s\n")
        resumed = site.now()
        time.sleep(ASIDE_SECONDS)
        last = site.now()
    print("| | jobs a second | claim p50 | p99 | worst |\n|---|---|---|---|---|")
    tell_claims(site, "before", begin, middle)
    tell_claims(site, "during cleanup", middle, end)
    tell_claims(site, "after", resumed, last)
    assert again == NOTHING
    assert site.ask(LEFT_OVER) == [(0,)]
    assert site.ask(UNFINISHED) == unfinished, "a job that must stay has changed"
    for job_id, _ in unfinished:
        assert site.files.has_source(job_id), f"the source of {job_id} is gone"


if __name__ == "__main__":
    main()
