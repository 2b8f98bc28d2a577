"""Times the operator's commands on a big table: loads jobs into an embedded PostgreSQL, then runs each command.

    python -m bench.operator_commands [--jobs 1000000] [--rounds 3]

The load goes around the triggers (one INSERT … SELECT per table) and then counts, as the migration would. A command's
time is the whole process, from the shell's point of view: Python's start and imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from convertq.cli.embedded import FAST, EmbeddedPostgres
from convertq.worker.config import read_config
from convertq.worker.counters import fold_counters
from convertq.worker.database_url import parse_database_url
from convertq.worker.db import Database, connect
from convertq.worker.metrics import metrics_text
from convertq.worker.migrations import migrate
from convertq.worker.stats import get_stats

CONVERTQ = str(Path(sys.executable).with_name("convertq"))
ONE = "ID"  # stands for the id of some job
COMMANDS = (
    ("list",),
    ("list", "--status", "failed"),
    ("list", "--code", "UNKNOWN"),
    ("show", ONE),
    ("stats",),
    ("stats", "--json"),
    ("servers",),
    ("breaker",),
    ("metrics",),
    ("top", "--once"),
    ("doctor",),
    ("cleanup", "--dry-run"),
)

#: 80 % complete, 10 % failed, 9 % queued, 1 % uploaded, over the last 30 days
LOAD = """
SET session_replication_role = replica;
INSERT INTO jobs (id, owner_session_id, original_filename, bytes, sha256, status, created_at, queued_at, started_at,
                  completed_at, failed_at, attempt_count, error_code, error_message, result_path, updated_at)
SELECT gen_random_uuid(), 'owner-' || n %% 1000, 'invoice-' || n || '.pdf', 20000, lpad(to_hex(n), 64, '0'), status,
       at, at, CASE WHEN ended THEN at END, CASE WHEN status = 'complete' THEN at END,
       CASE WHEN status = 'failed' THEN at END, ended::int, CASE WHEN status = 'failed' THEN 'GW_5XX' END,
       CASE WHEN status = 'failed' THEN 'the gateway answered 503' END, CASE WHEN status = 'complete' THEN '/x' END, at
  FROM (SELECT n, now() - interval '30 days' * (1 - n::float8 / %(jobs)s) AS at,
               CASE WHEN n %% 100 < 80 THEN 'complete' WHEN n %% 100 < 90 THEN 'failed'
                    WHEN n %% 100 < 99 THEN 'queued' ELSE 'uploaded' END AS status,
               n %% 100 < 90 AS ended
          FROM generate_series(1, %(jobs)s) AS n) AS made;
INSERT INTO job_events (job_id, event_type, at, meta, xact_id)
SELECT id, event_type, created_at, CASE WHEN event_type IN ('complete', 'failed') THEN jsonb_build_object(
           'worker', 'host-a:1:aaaa/1', 'attempt', 1, 'gateway_ok', event_type = 'complete',
           'gateway_ms', (random() * 4000)::int, 'duration_ms', 4100, 'error_code', error_code) ELSE '{}' END, '0'
  FROM jobs
 CROSS JOIN LATERAL (VALUES ('created', 0), ('queued', 1), ('processing', 2), (status, 3)) AS e (event_type, step)
 WHERE step <= CASE status WHEN 'uploaded' THEN 0 WHEN 'queued' THEN 1 ELSE 3 END
 ORDER BY created_at, step;
SET session_replication_role = origin;
UPDATE counters_place SET event_id = (SELECT max(id) FROM job_events);
INSERT INTO counters SELECT * FROM count_events('0', 0, '0', (SELECT event_id FROM counters_place))
ON CONFLICT (name, label) DO UPDATE SET value = excluded.value;
SELECT recount_jobs();
INSERT INTO servers (id, hostname, pid, version, environment, concurrency, status, stopped_at)
SELECT 'host-' || n || ':1:aaaa', 'host', 1, '1', 'bench', 4, CASE WHEN n < 10 THEN 'active' ELSE 'stopped' END,
       CASE WHEN n >= 10 THEN now() END
  FROM generate_series(1, 20) AS n;
"""


def load(server: EmbeddedPostgres, jobs: int) -> None:
    url = parse_database_url(server.url())
    with connect(url, "convertq:bench", statement_timeout=3600) as connection:
        connection.patience = 3600
        migrate(connection, url.schema)
        for statement in (LOAD % {"jobs": jobs}).split(";\n"):
            if statement.strip():
                connection.execute(statement.encode())
        connection.execute("VACUUM ANALYZE")


def seconds(command: tuple[str, ...], environment: Mapping[str, str]) -> float:
    began = time.monotonic()
    done = subprocess.run([CONVERTQ, *command], env=environment, stdout=subprocess.DEVNULL)
    assert done.returncode == 0 or command == ("doctor",), command  # the loaded rows have no files, which it says
    return time.monotonic() - began


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


def busy_queue(server: EmbeddedPostgres, jobs: int) -> float:
    """Seconds to fold so many fresh jobs' events: what supervisors do between two heartbeats."""
    url = parse_database_url(server.url())
    with connect(url, "convertq:bench", statement_timeout=600) as connection:
        connection.patience = 600
        connection.execute(
            "INSERT INTO jobs (owner_session_id, bytes, sha256, status)"
            " SELECT 'fresh', 1, md5(n::text) || md5(n::text), 'queued' FROM generate_series(1, %s) AS n",
            [jobs],
        )
        began = time.monotonic()
        folded = fold_counters(Database(connection, url.schema), time_to_fold=600)
        assert folded == 2 * jobs
        return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with EmbeddedPostgres(settings={**FAST, "shared_buffers": "128MB"}) as server:
        began = time.monotonic()
        load(server, asked.jobs)
        print(f"loaded {asked.jobs:,} jobs in {time.monotonic() - began:.0f} s")
        home = Path(tempfile.mkdtemp())
        environment = {**os.environ, "DATABASE_URL": server.url(), "UPLOADS_DIR": str(home), "RESULTS_DIR": str(home)}
        some = subprocess.run(
            [CONVERTQ, "list", "--json", "--limit", "1"], env=environment, capture_output=True, text=True
        )
        for template in COMMANDS:
            command = tuple(json.loads(some.stdout)["id"] if word == ONE else word for word in template)
            times = [seconds(command, environment) for _ in range(asked.rounds)]
            print(f"convertq {' '.join(template):<22} {statistics.median(times):6.2f} s (worst {max(times):.2f} s)")
        of_stats, of_scrape = in_the_database(server)
        print(f"in the database: stats {of_stats * 1000:.0f} ms, a scrape {of_scrape * 1000:.0f} ms")
        print(f"folding 100,000 events       {busy_queue(server, 50_000):6.2f} s")


if __name__ == "__main__":
    main()
