"""The web under load: memory while many upload at once, and how long a poll takes beside a large table.

`python -m bench.web`: 50 uploads of 20 MB at once, then 200 pages that poll on 100,000 jobs while workers claim, then
requests a second, and the status that pages poll while 100,000 new jobs wait and no worker runs.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.queue.config import Config, read_config
from convertq.queue.database.connection import connect
from convertq.queue.database.migrations import migrate

from bench.big_table import register
from bench.claims import Claimer
from bench.postgres import DurablePostgres
from bench.processes import cpu_seconds

PROCESSES = 2
UPLOADS, UPLOAD_BYTES = 50, 20_000_000
CLIENTS, JOBS, SECONDS = 200, 100_000, int(os.environ.get("BENCH_SECONDS", "30"))
CLAIMS = 2000
CONNECTIONS, RATE_SECONDS = 16, 5
STATUS_POLLS = 100
POLL_EVERY_SECONDS = 2.0
PIECE = b"%" * 65536
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n%%PDF-1.7\n%s\n'
TAIL = b"\r\n--x--\r\n"

FILL = """
INSERT INTO jobs (owner_session_id, bytes, sha256, status, created_at, queued_at, completed_at)
SELECT (%(owners)s::text[])[1 + n %% cardinality(%(owners)s::text[])], n, md5(n::text) || md5(n::text),
       CASE WHEN n %% 10 = 0 THEN 'queued' ELSE 'complete' END, now() - n * interval '1 s', now(),
       CASE WHEN n %% 10 <> 0 THEN now() END
  FROM generate_series(1, %(jobs)s) AS n
"""


@contextmanager
def web(postgres: EmbeddedPostgres, home: Path) -> Iterator[tuple[int, list[int]]]:
    """Its port, and the pids of its processes."""
    settings = {
        "DATABASE_URL": postgres.url(), "UPLOADS_DIR": str(home / "uploads"), "RESULTS_DIR": str(home / "results"),
        "LOG_LEVEL": "ERROR",
    }  # fmt: skip
    command = [sys.executable, "-m", "convertq.cli.main", "web", "run", "--port", "0", "--processes", str(PROCESSES)]
    process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        port = int(process.stdout.readline().rpartition(":")[2])
        pids = wait_for_children(process.pid)
        for _ in range(40):  # each of them has answered
            ask(http.client.HTTPConnection("127.0.0.1", port), str(uuid4()))
        yield port, pids
    finally:
        process.terminate()
        process.wait()


def wait_for_children(pid: int) -> list[int]:
    """The processes are started one after the other."""
    while True:
        pids = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        if len(pids) == PROCESSES:
            return pids
        time.sleep(0.05)


def ask(line: http.client.HTTPConnection, owner: str, etag: str = "") -> tuple[int, str]:
    headers = {"Cookie": f"owner_session_id={owner}", **({"If-None-Match": etag} if etag else {})}
    line.request("GET", "/api/jobs", headers=headers)
    answer = line.getresponse()
    answer.read()
    return answer.status, answer.headers.get("ETag", "")


def at_once(number: int, act: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=act, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- uploads --


def memory(pid: int) -> dict[str, float]:
    """MB: what it has now, and the most that it had since it began."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1000 for line in lines if line.startswith(("VmHWM", "VmRSS"))}


def uploads(port: int, pids: list[int]) -> None:
    before = {pid: memory(pid) for pid in pids}
    statuses: list[int] = []

    def upload(number: int) -> None:
        head = HEAD % uuid4().hex.encode()
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        line.putrequest("POST", "/api/jobs")
        line.putheader("Content-Type", "multipart/form-data; boundary=x")
        line.putheader("Sec-Fetch-Site", "same-origin")
        line.putheader("Content-Length", str(len(head) + UPLOAD_BYTES + len(TAIL)))
        line.endheaders(head)
        for sent in range(0, UPLOAD_BYTES, len(PIECE)):
            line.send(PIECE[: UPLOAD_BYTES - sent])
        line.send(TAIL)
        statuses.append(line.getresponse().status)

    began = time.perf_counter()
    at_once(UPLOADS, upload)
    took = time.perf_counter() - began
    assert statuses == [201] * UPLOADS, statuses
    print(f"\n{UPLOADS} uploads of {UPLOAD_BYTES / 1e6:.0f} MB at once, {PROCESSES} processes: {took:.1f} s in all\n")
    print("| process | before | most while they ran | growth |\n|---|---:|---:|---:|")
    for number, pid in enumerate(pids, 1):
        most = memory(pid)["VmHWM"]
        print(f"| {number} | {before[pid]['VmRSS']:.0f} MB | {most:.0f} MB | {most - before[pid]['VmHWM']:.1f} MB |")


# -- polls --


def fill(postgres: EmbeddedPostgres, owners: list[str]) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as conn:
        conn.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
        conn.execute(FILL, {"owners": owners, "jobs": JOBS})
        conn.execute("ALTER TABLE jobs ENABLE TRIGGER USER")
        conn.execute("VACUUM ANALYZE jobs")


def poll(port: int, owners: list[str]) -> list[float]:
    """Milliseconds of every poll; each page begins at a random time."""
    times: list[float] = []
    ends = time.monotonic() + SECONDS

    def page(number: int) -> None:
        line, etag = http.client.HTTPConnection("127.0.0.1", port, timeout=30), ""
        time.sleep(random.uniform(0, POLL_EVERY_SECONDS))
        while time.monotonic() < ends:
            began = time.perf_counter()
            status, etag = ask(line, owners[number], etag)
            times.append((time.perf_counter() - began) * 1000)
            assert status in (200, 304), status
            time.sleep(POLL_EVERY_SECONDS)

    at_once(CLIENTS, page)
    return times


def polls(postgres: EmbeddedPostgres, config: Config, port: int) -> None:
    """The clients are a process of their own, so that they do not wait for each other's Python with the claims."""
    owners = [str(uuid4()) for _ in range(CLIENTS)]
    fill(postgres, owners)
    claimer = Claimer(config)
    alone = claimer.claim(CLAIMS)
    command = [sys.executable, "-m", "bench.web", "poll", str(port)]
    clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert clients.stdin
    clients.stdin.write(json.dumps(owners) + "\n")
    clients.stdin.flush()
    time.sleep(POLL_EVERY_SECONDS * 2)
    beside = claimer.claim(CLAIMS)
    times = json.loads(clients.communicate()[0])
    load = f"{CLIENTS} pages that poll every {POLL_EVERY_SECONDS:g} s, {JOBS:,} jobs, {PROCESSES} processes"
    print(f"\n{load}, {len(times)} polls\n")
    print("| | p50 | p95 | p99 |\n|---|---:|---:|---:|")
    for name, found in (("a poll", times), ("a claim, nobody polls", alone), ("a claim, all poll", beside)):
        cuts = statistics.quantiles(found, n=100)
        print(f"| {name} | {cuts[49]:.1f} ms | {cuts[94]:.1f} ms | {cuts[98]:.1f} ms |")


# -- requests a second, and the status --


def rate(port: int, path: str) -> float:
    """Of connections that are kept, each of which asks again as soon as it has its answer."""
    answered: list[int] = []
    ends = time.monotonic() + RATE_SECONDS

    def ask_on(number: int) -> None:
        line, count = http.client.HTTPConnection("127.0.0.1", port, timeout=30), 0
        headers = {"Cookie": f"owner_session_id={uuid4()}"}
        while time.monotonic() < ends:
            line.request("GET", path, headers=headers)
            assert line.getresponse().read()
            count += 1
        answered.append(count)

    at_once(CONNECTIONS, ask_on)
    return sum(answered) / RATE_SECONDS


def rates(port: int, pids: list[int]) -> None:
    print(f"\n{CONNECTIONS} kept-alive connections, {RATE_SECONDS} s each, {PROCESSES} processes\n")
    print("| | requests/s | CPU of the web, ms a request |\n|---|---:|---:|")
    for path in ("/health", "/api/jobs", "/"):
        before = sum(map(cpu_seconds, pids))
        found = rate(port, path)
        spent = 1000 * (sum(map(cpu_seconds, pids)) - before) / (found * RATE_SECONDS)
        print(f"| `GET {path}` | {found:.0f} | {spent:.2f} |", flush=True)
    print("\nmemory afterwards: " + ", ".join(f"{memory(pid)['VmRSS']:.0f} MB" for pid in pids))


def status(postgres: EmbeddedPostgres, port: int) -> None:
    """Milliseconds of a poll while nobody aggregates the counters; a poll every tenth of a second."""
    with psycopg.connect(postgres.url(), autocommit=True) as conn:
        conn.execute(
            "INSERT INTO jobs (bytes, sha256, status)"
            " SELECT n, lpad(n::text, 64, '0'), 'queued' FROM generate_series(1, %s) AS n",
            [JOBS],
        )
    line, times = http.client.HTTPConnection("127.0.0.1", port, timeout=30), []
    for _ in range(STATUS_POLLS):
        began = time.perf_counter()
        line.request("GET", "/api/status")
        assert line.getresponse().read()
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.1)
    cuts = statistics.quantiles(times, n=100)
    print(f"\n`GET /api/status`, {JOBS:,} new jobs, no worker: p50 {cuts[49]:.1f} ms, most {max(times):.0f} ms")


@contextmanager
def server() -> Iterator[tuple[DurablePostgres, Config]]:
    with DurablePostgres() as postgres:
        config = read_config({"DATABASE_URL": postgres.url()})
        with connect(config.database, "bench") as connection:
            migrate(connection, config.database.schema)
        register(config)
        yield postgres, config


def main() -> None:
    if sys.argv[1:2] == ["poll"]:
        print(json.dumps(poll(int(sys.argv[2]), json.loads(sys.stdin.readline()))))
        return
    with server() as (postgres, config), tempfile.TemporaryDirectory(prefix="convertq-bench-") as home:
        with web(postgres, Path(home)) as (port, pids):
            uploads(port, pids)
        with web(postgres, Path(home)) as (port, _):
            polls(postgres, config, port)
        with web(postgres, Path(home)) as (port, pids):
            rates(port, pids)
            status(postgres, port)


if __name__ == "__main__":
    main()
