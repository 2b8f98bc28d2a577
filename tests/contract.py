"""Holds the API to its contract with schemathesis: a server, jobs in every state, and generated requests.

`make test-api`, `python -m tests.contract EXAMPLES`: exits 1 at a server error, or an answer that is not promised.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from psycopg.rows import dict_row

from tests.conftest import migrate
from tests.documents import PDF
from tests.jobs import Conn, insert_job
from tests.processes import Process
from tests.web_client import TOKEN, Site

ROOT = Path(__file__).parents[1]
SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))


@dataclass(frozen=True)
class Verdict:
    code: int
    requests: int
    said: str


def put_jobs(conn: Conn, owner: str, uploads: Path, results: Path) -> list[UUID]:
    """One in each state, the failed one with its source, the complete one with its result; and another visitor's."""
    states = ("uploaded", "queued", "processing", "failed", "complete", "complete")
    jobs = [insert_job(conn, status, owner_session_id=owner, original_filename="fatura nº 1.pdf") for status in states]
    failed, complete = jobs[3], jobs[4]
    (uploads / f"{failed}.pdf").write_bytes(PDF)
    (results / f"{complete}.xml").write_text("<invoice/>")
    conn.execute("UPDATE jobs SET upload_path = 'x' WHERE id = %s", [failed])
    conn.execute("UPDATE jobs SET result_path = 'x' WHERE id = %s", [complete])
    return [*jobs, insert_job(conn, "complete", owner_session_id=str(uuid4()))]


def hold_to_contract(site: Site, owner: str, jobs: list[UUID], home: Path, examples: int, *options: str) -> Verdict:
    """`home`: where it may leave its notes."""
    given = {"SCHEMATHESIS_HOOKS": "tests.contract_hooks", "CONTRACT_JOBS": " ".join(map(str, jobs))}
    done = subprocess.run(
        [
            SCHEMATHESIS, "--config-file", str(ROOT / "tests" / "schemathesis.toml"),
            "run", f"{site.url}/api/openapi.json", "--max-examples", str(examples),
            "--header", f"Authorization: Bearer {TOKEN}", "--header", f"Cookie: owner_session_id={owner}",
            "--continue-on-failure", "--no-color", *options,
        ],
        cwd=home, capture_output=True, text=True, env={**os.environ, **given, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    generated = re.search(r"(\d+) generated", done.stdout)
    return Verdict(done.returncode, int(generated[1]) if generated else 0, done.stdout + done.stderr)


def main(examples: int) -> int:
    with tempfile.TemporaryDirectory() as home, EmbeddedPostgres(port=0) as postgres:
        migrate(postgres.url())
        uploads, results = Path(home, "uploads"), Path(home, "results")
        environment = {
            **os.environ, "DATABASE_URL": postgres.url(), "UPLOADS_DIR": str(uploads), "RESULTS_DIR": str(results),
            "ADMIN_TOKEN": TOKEN, "SESSION_MAX_ACTIVE": "1000000", "LOG_FORMAT": "json",
        }  # fmt: skip
        process = Process("web", "run", "--port", "0", environment=environment)
        try:
            site, owner = Site(process), str(uuid4())
            with psycopg.connect(postgres.url(), autocommit=True, row_factory=dict_row) as conn:
                jobs = put_jobs(conn, owner, uploads, results)
            verdict = hold_to_contract(site, owner, jobs, Path(home), examples)
        finally:
            process.end()
    print(verdict.said)
    return verdict.code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 150))
