"""Times the operator's commands on a big table: loads jobs into an embedded PostgreSQL, then runs each command.

    python -m bench.operator_commands [--jobs 1000000] [--rounds 5]

A command's time is the whole process, from the shell's point of view: Python's start and imports included. A scrape's
is what Prometheus waits for: an HTTP request to a supervisor that runs with METRICS_PORT.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from convertq.embedded.postgres import FAST, EmbeddedPostgres, free_port
from convertq.queue.config import read_config
from convertq.queue.counters import aggregate_counters
from convertq.queue.database.connection import connect
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.metrics import metrics_text
from convertq.queue.stats import get_stats

from bench.many_jobs import load

CONVERTQ = str(Path(sys.executable).with_name("convertq"))
#: words that stand for a job with its file on disk, another one in each round, and for files
COMPLETE, FAILED, PDF, TEXTFILE = "COMPLETE", "FAILED", "FILE.pdf", "FILE.prom"
COMMANDS = (
    ("submit", "--priority", "5", PDF),
    ("wait", COMPLETE),
    ("result", COMPLETE),
    ("list",),
    ("list", "--status", "failed"),
    ("list", "--code", "UNKNOWN"),
    ("show", COMPLETE),
    ("retry", FAILED),
    ("reclaim",),
    ("stats",),
    ("stats", "--json"),
    ("servers",),
    ("breaker",),
    ("top", "--once"),
    ("doctor",),
    ("cleanup", "--dry-run"),
    ("metrics",),
    ("metrics", "--textfile", TEXTFILE),
    ("config",),
    ("completion", "bash"),
)
SCRAPES = 20
DEADLINE_SECONDS = 30.0


class Desk:
    """Where the commands run: their environment, and jobs whose files are there."""

    def __init__(self, server: EmbeddedPostgres, rounds: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="convertq-bench-"))
        self._url = server.url()
        self.environment = {
            **os.environ, "DATABASE_URL": self._url, "UPLOADS_DIR": str(self.home), "RESULTS_DIR": str(self.home),
        }  # fmt: skip
        # as an installed package has it: compiled once
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._complete = self._jobs("complete", ".xml", b"<x/>", rounds)
        self._failed = self._jobs("failed", ".pdf", b"%PDF-1.4\n", rounds)

    def _jobs(self, status: str, suffix: str, content: bytes, count: int) -> list[str]:
        with psycopg.connect(self._url) as conn:
            found = conn.execute("SELECT id::text FROM jobs WHERE status = %s LIMIT %s", [status, count]).fetchall()
        for (job_id,) in found:
            (self.home / f"{job_id}{suffix}").write_bytes(content)
        return [job_id for (job_id,) in found]

    def seconds(self, command: tuple[str, ...], turn: int) -> float:
        words = [self._word(word, turn) for word in command]
        began = time.monotonic()
        done = subprocess.run([CONVERTQ, *words], env=self.environment, stdout=subprocess.DEVNULL)
        took = time.monotonic() - began
        assert done.returncode == 0 or command == ("doctor",), command  # the loaded rows have no files, which it says
        return took

    def _word(self, word: str, turn: int) -> str:
        if word == PDF:
            (self.home / word).write_bytes(b"%PDF-1.4\n" + os.urandom(20_000))
        jobs = {COMPLETE: self._complete, FAILED: self._failed}
        return jobs[word][turn] if word in jobs else str(self.home / word) if word in (PDF, TEXTFILE) else word


@contextmanager
def supervisor(environment: Mapping[str, str]) -> Iterator[str]:
    """With METRICS_PORT, and an open breaker: it claims nothing. Gives the address of its metrics."""
    port = free_port()
    subprocess.run([CONVERTQ, "breaker", "open"], env=environment, check=True, stdout=subprocess.DEVNULL)
    given = {**environment, "METRICS_PORT": str(port), "GATEWAY_URL": "http://127.0.0.1:9"}
    process = subprocess.Popen(
        [CONVERTQ, "worker", "run"], env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.terminate()
        process.wait()


def scrapes(address: str) -> list[float]:
    """Milliseconds of each; the first, which opens the connection to the database, is not among them."""
    give_up = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < give_up:
        try:
            scrape(address)
            return [scrape(address) for _ in range(SCRAPES)]
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the supervisor did not answer a scrape")


def scrape(address: str) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as answer:
        assert b"convertq_jobs{" in answer.read()
    return (time.monotonic() - began) * 1000


def in_the_database(server: EmbeddedPostgres) -> tuple[float, float]:
    """Seconds of `stats` and of a scrape without the start of a process."""
    config = read_config({"DATABASE_URL": server.url()})
    database = Database.open(config.database, "convertq:bench")
    times = []
    for ask in (get_stats, metrics_text):
        ask(database, config)
        began = time.monotonic()
        ask(database, config)
        times.append(time.monotonic() - began)
    database.close()
    return times[0], times[1]


def start_alone(rounds: int) -> tuple[float, float]:
    """Seconds of Python's start, and of it with the imports that no command that asks the database can do without."""
    times = []
    for imports in ("pass", "import click, psycopg"):
        taken = []
        for _ in range(rounds):
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", imports], check=True)
            taken.append(time.monotonic() - began)
        times.append(statistics.median(taken))
    return times[0], times[1]


def busy_queue(server: EmbeddedPostgres, jobs: int) -> float:
    """Seconds to aggregate so many fresh jobs' events: what supervisors do between two heartbeats."""
    url = parse_database_url(server.url())
    with connect(url, "convertq:bench", statement_timeout=600) as connection:
        connection.answer_timeout_seconds = 600
        connection.execute(
            "INSERT INTO jobs (owner_session_id, bytes, sha256, status)"
            " SELECT 'fresh', 1, md5(n::text) || md5(n::text), 'queued' FROM generate_series(1, %s) AS n",
            [jobs],
        )
        began = time.monotonic()
        aggregated = aggregate_counters(Database(connection, url.schema), seconds=600)
        assert aggregated == 2 * jobs
        return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with EmbeddedPostgres(settings={**FAST, "shared_buffers": "128MB"}) as server:
        began = time.monotonic()
        load(server, asked.jobs)
        print(f"loaded {asked.jobs:,} jobs in {time.monotonic() - began:.0f} s\n\n| | p50 | worst |\n|---|---|---|")
        desk = Desk(server, asked.rounds)
        for command in COMMANDS:
            times = [desk.seconds(command, turn) for turn in range(asked.rounds)]
            print(f"| `convertq {' '.join(command)}` | {statistics.median(times):.2f} s | {max(times):.2f} s |")
        with supervisor(desk.environment) as address:
            waited = scrapes(address)
        print(f"| a scrape of `METRICS_PORT` | {statistics.median(waited):.0f} ms | {max(waited):.0f} ms |\n")
        of_stats, of_scrape = in_the_database(server)
        of_python, of_imports = start_alone(asked.rounds)
        print(
            f"of a command: Python's start {of_python:.2f} s, with the imports of click and psycopg {of_imports:.2f} s"
        )
        print(f"in the database: stats {of_stats * 1000:.0f} ms, a scrape {of_scrape * 1000:.0f} ms")
        print(f"aggregate 100,000 events: {busy_queue(server, 50_000):.2f} s")
        shutil.rmtree(desk.home)


if __name__ == "__main__":
    main()
