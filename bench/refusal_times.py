"""Whether the time of a refusal tells what another visitor's job is, has or does.

`python -m bench.refusal_times`: another visitor's jobs, one of each kind, are requested on every route in random
order. For each route the medians of the kinds are compared: the largest over the smallest. What chance alone makes of
that ratio is found in the same answers, with the kinds shuffled.
"""

from __future__ import annotations

import http.client
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres

from bench.web import JOBS, fill, server, web

ASKED = int(os.environ.get("BENCH_ASKED", "400"))  # times, each job on each route
SHUFFLES = 300
EVENTS = 20_000  # of the job with a long history
RESULT_BYTES = 20_000_000
ROUTES = (
    ("GET", "/api/jobs/{id}"), ("GET", "/api/jobs/{id}/events"), ("GET", "/api/jobs/{id}/progress"),
    ("GET", "/api/jobs/{id}/download"), ("HEAD", "/api/jobs/{id}/download"), ("POST", "/api/jobs/{id}/retry"),
    ("GET", "/api/jobs?before={id}"), ("POST", "/jobs/{id}/retry"),
)  # fmt: skip
#: each kind of job, as columns of its row
KINDS: dict[str, dict[str, object]] = {
    "queued": {"status": "queued"},
    "processing": {"status": "processing", "leased_by": "host:1:aaaa/1", "lease_expires_at": "2100-01-01"},
    "complete, its result on disk": {"status": "complete", "completed_at": "now", "result_path": "x"},
    "failed, its source on disk": {
        "status": "failed", "failed_at": "now", "error_code": "GW_5XX", "dead_letter": True, "upload_path": "x",
    },
    "queued, a long history": {"status": "queued"},
}  # fmt: skip

Times = dict[str, list[float]]  # of each kind, in milliseconds


def put_jobs(postgres: EmbeddedPostgres, home: Path) -> dict[str, UUID]:
    """Of one visitor, among many others' jobs."""
    fill(postgres, [str(uuid4()) for _ in range(200)])
    made, owner = {kind: uuid4() for kind in KINDS}, str(uuid4())
    with psycopg.connect(postgres.url(), autocommit=True) as conn:
        for number, (kind, job_id) in enumerate(made.items()):
            columns = {"id": job_id, "owner_session_id": owner, "bytes": JOBS, "sha256": f"{number:064}", **KINDS[kind]}
            names, values = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
            conn.execute(f"INSERT INTO jobs ({names}) VALUES ({values})".encode(), columns)
        long = made["queued, a long history"]
        conn.execute(
            "INSERT INTO job_events (job_id, event_type, meta) SELECT %s, 'retry', '{}' FROM generate_series(1, %s)",
            [long, EVENTS],
        )
        conn.execute("VACUUM ANALYZE")
    for folder, kind, ending in (
        ("results", "complete, its result on disk", "xml"),
        ("uploads", "failed, its source on disk", "pdf"),
    ):
        (home / folder / f"{made[kind]}.{ending}").write_bytes(b"%" * RESULT_BYTES)
    return made


def measure(port: int, method: str, route: str, jobs: dict[str, UUID]) -> Times:
    """One after another over one connection, in random order, so that a slow second falls upon all kinds alike."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Cookie": f"owner_session_id={uuid4()}", "Sec-Fetch-Site": "same-origin"}
    times: Times = {kind: [] for kind in jobs}
    order = list(jobs) * ASKED
    random.shuffle(order)
    for kind in order:
        began = time.perf_counter()
        line.request(method, route.format(id=jobs[kind]), headers=headers)
        answer = line.getresponse()
        answer.read()
        times[kind].append((time.perf_counter() - began) * 1000)
        assert answer.status == 403, answer.status
    return times


def ratio(times: Times) -> float:
    medians = [statistics.median(each) for each in times.values()]
    return max(medians) / min(medians)


def by_chance(times: Times) -> float:
    """The ratio that 99 of 100 shuffles stay below: the kinds are mixed, so nothing but noise is left in it."""
    pool, found = [value for each in times.values() for value in each], []
    for _ in range(SHUFFLES):
        random.shuffle(pool)
        found.append(ratio({str(start): pool[start :: len(times)] for start in range(len(times))}))
    return statistics.quantiles(found, n=100)[98]


def main() -> None:
    with server() as (postgres, _), tempfile.TemporaryDirectory(prefix="convertq-bench-") as folder:
        home = Path(folder)
        with web(postgres, home) as (port, _):
            jobs = put_jobs(postgres, home)
            measure(port, *ROUTES[0], jobs)  # everything is warm
            print(
                f"\nanother visitor's job: {', '.join(KINDS)}; {ASKED} answers of each on each route, {JOBS:,} jobs\n"
            )
            print("| route | median of the quickest kind | of the slowest | ratio | 99 % of chance stays below |")
            print("|---|---:|---:|---:|---:|")
            for method, route in ROUTES:
                times = measure(port, method, route, jobs)
                medians = [statistics.median(each) for each in times.values()]
                row = f"{min(medians):.3f} ms | {max(medians):.3f} ms | {ratio(times):.3f}× | {by_chance(times):.3f}×"
                print(f"| `{method} {route}` | {row} |", flush=True)


if __name__ == "__main__":
    main()
