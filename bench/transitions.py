"""What PostgreSQL spends on a job, by transition, beside earlier versions: CPU of one backend, in alternating rounds.

    python -m bench.transitions [REF …] [--rounds 15] [--jobs 320] [--terminal 200000]

Each version is its own schema and its own statements: those of this checkout, one job and eight jobs at a time, and
those of each commit named. The connection is the same for all, so this shows what SQL costs and nothing else. Jobs are
submitted, then claimed and completed as by a worker in the middle of a queue.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import psycopg
from convertq import sql
from convertq.queue.config import read_config
from convertq.queue.database.connection import connect
from convertq.queue.scan_budget import START
from psycopg.rows import DictRow

from bench.big_table import SERVER, Rows, fill
from bench.contender import ROOT
from bench.postgres import DurablePostgres
from bench.steps import cpu_milliseconds

HERE, BATCH = "this version", 8
HOLDER = f"{SERVER}/1"
STEPS = ("submit", "complete + claim")
#: every parameter of a claim and of a completion, under the names of any version
CLAIM: dict[str, Any] = {
    "server": SERVER, "holder": HOLDER, "claimant": HOLDER, "lease_ttl": 600, "check_for_due": False,
    "due_after": "-infinity", "watermark_priority": START.priority, "watermark_created_at": START.created_at,
    "watermark_id": START.id, "finished": "[]", "retention_days": 30, "count_up_to": 0, "excluded": "{}",
    **START.parameters,
}  # fmt: skip
COMPLETION: dict[str, Any] = {
    "result_path": "/results/x.xml", "retention_days": 30, "gateway_ok": True, "gateway_status": 200,
    "gateway_ms": 12, "duration_ms": 14,
    "event": '{"worker": "bench", "attempt": 1, "duration_ms": 14, "gateway_ok": true, "gateway_status": 200}',
}  # fmt: skip


class Version:
    """One set of statements on a database of its own, and what its backend has spent on them."""

    def __init__(self, name: str, folder: Path, url: str, terminal: int, batch: int) -> None:
        self._queries, self._batch = folder / "queries", batch
        self._connection = connect(read_config({"DATABASE_URL": url}).database, "bench", claims=True)
        for file in sorted((folder / "migrations").glob("*.sql")):
            self._connection.execute(file.read_text().replace("{schema}", '"public"').encode())
        fill(url, Rows(queued=batch, terminal=terminal))
        self._run(
            "register_server",
            server=SERVER,
            hostname="b",
            pid=1,
            version="b",
            environment="b",
            concurrency=1,
            gateways="[]",
            gateways_digest="",
            takes_turns=False,
            owner_max_running=0,
        )
        first = "claim_job" if (self._queries / "claim_job.sql").exists() else "complete_and_claim"
        self._jobs = self._run(first, **CLAIM, wanted=batch)
        self.name, self.milliseconds = name, {step: list[float]() for step in STEPS}

    def measure(self, jobs: int) -> None:
        self.milliseconds["submit"].append(self._spent(self._submit, jobs) / jobs)
        self.milliseconds["complete + claim"].append(self._spent(self._complete_and_claim, jobs // self._batch) / jobs)

    def _spent(self, action: Callable[[], None], times: int) -> float:
        before = cpu_milliseconds(self._connection.info.backend_pid)
        for _ in range(times):
            action()
        return cpu_milliseconds(self._connection.info.backend_pid) - before

    def _submit(self) -> None:
        name = uuid4()
        self._run(
            "submit_job", id=name, owner="bench", original_filename="invoice.pdf", bytes=20_000, sha256=name.hex * 2,
            mapping="pt_simon_invoice_v1", pretty=True, priority=0, status="queued", upload_path=f"/uploads/{name}.pdf",
            not_before=None, deadline=None,
        )  # fmt: skip

    def _complete_and_claim(self) -> None:
        fences = [{"id": job["id"], "attempt": job["attempt"]} for job in self._jobs]
        event = json.loads(COMPLETION["event"])
        finished = [
            {"id": str(fence["id"]), "holder": HOLDER, "attempt": fence["attempt"], "result_path": "x", "event": event}
            for fence in fences
        ]
        self._jobs = self._run(
            "complete_and_claim",
            **CLAIM | COMPLETION | fences[0] | {"finished": json.dumps(finished), "wanted": self._batch},
        )
        assert self._jobs[0]["completed"]
        assert len(self._jobs) == self._batch
        assert self._jobs[0]["id"] is not None

    def _run(self, statement: str, /, **parameters: Any) -> list[DictRow]:
        text = (self._queries / f"{statement}.sql").read_text().replace("{schema}", '"public"')
        text = text.replace("{claim_order}", sql.claim_order())
        cursor = self._connection.execute(text.encode(), parameters, prepare=True)
        return cursor.fetchall() if cursor.description else []

    def vacuum(self) -> None:
        self._connection.execute("VACUUM ANALYZE jobs, job_events")


def statements_of(ref: str, folder: Path) -> Path:
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", ref, "sql"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder / ref, filter="data")
    return folder / ref / "sql"


def table(versions: list[Version]) -> str:
    lines = ["| version | submit | complete + claim | sum | ratio by round |", "|---|---:|---:|---:|---|"]
    first = versions[0]
    for version in versions:
        by_step = [version.milliseconds[step] for step in STEPS]
        sums = [sum(each) for each in zip(*by_step, strict=True)]
        others = [sum(each) for each in zip(*(first.milliseconds[step] for step in STEPS), strict=True)]
        ratios = sorted(own / other for own, other in zip(sums, others, strict=True))
        spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        figures = " | ".join(f"{median(each):.3f}" for each in (*by_step, sums))
        lines.append(f"| {version.name} | {figures} | {spread} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("refs", metavar="REF", nargs="*", help="commits to compare with; the first one is 1.00")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=320, help="in each round")
    parser.add_argument("--terminal", type=int, default=200_000, help="jobs that are complete or failed already")
    asked = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        postgres = opened.enter_context(DurablePostgres())
        compared = [(ref, statements_of(ref, folder), 1) for ref in asked.refs]
        compared += [(HERE, ROOT / "sql", 1), (f"{HERE}, {BATCH} at a time", ROOT / "sql", BATCH)]
        versions = [
            Version(name, sql_of, opened.enter_context(postgres.database(f"version_{number}")), asked.terminal, batch)
            for number, (name, sql_of, batch) in enumerate(compared)
        ]
        for number in range(asked.rounds + 1):
            for version in versions:
                version.measure(asked.jobs)
                if number == 0:  # plans and caches are as after a while from now on
                    version.vacuum()
                    for spent in version.milliseconds.values():
                        spent.clear()
        print(f"\nms of CPU of a backend, a job; median of {asked.rounds} rounds\n\n{table(versions)}")


if __name__ == "__main__":
    try:
        main()
    except psycopg.Error as error:
        raise SystemExit(str(error)) from error
