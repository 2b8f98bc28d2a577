"""One installation of a chaos test: a database, directories, hosts, and jobs whose conversions the test holds."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from psycopg.rows import dict_row

from tests.conftest import SETTINGS, Convertq, Dirs, migrate
from tests.documents import PDF, Documents
from tests.gateway_behaviours import held
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.waiting import Row

DEFAULTS: dict[str, object] = dict.fromkeys(SETTINGS)  # not one setting of the tests' own
#: What a job's events are, as regular expressions.
UNDISTURBED = "created queued processing complete"
#: A claim whose commit was given up begins no conversion: the job goes back, and the attempt does not count.
CLAIM_LOST = "created queued (processing requeued )*processing complete"


class Installation:
    """Several of them may share a PostgreSQL and a gateway; each has its own database and directories."""

    def __init__(
        self, name: str, postgres: EmbeddedPostgres, port: int, folder: Path, convertq: Convertq, **settings: object
    ) -> None:
        """`port` is the one at which its hosts reach the database: of PostgreSQL, or of a network before it."""
        self.name, self._postgres, self._convertq = name, postgres, convertq
        self._database = name.replace(" ", "_")
        self.dirs = Dirs(folder / self._database / "uploads", folder / self._database / "results")
        for path in (self.dirs.uploads, self.dirs.results):
            path.mkdir(parents=True)
        with psycopg.connect(postgres.url(), autocommit=True) as conn:
            conn.execute(f'CREATE DATABASE "{self._database}"'.encode())
        migrate(postgres.url(self._database))
        self.settings: dict[str, object] = {
            **DEFAULTS,
            "DATABASE_URL": f"postgresql://{postgres.user}@127.0.0.1:{port}/{self._database}",
            "UPLOADS_DIR": self.dirs.uploads,
            "RESULTS_DIR": self.dirs.results,
            "WORKER_CONCURRENCY": 2,
            **settings,
        }
        self.hosts: list[Process] = []
        self.jobs: list[UUID] = []

    def start_host(self) -> None:
        """Not waited for: several start at once."""
        self.hosts.append(self.run("worker", "run"))

    def wait_until_ready(self) -> None:
        for host in self.hosts:
            host.wait_for_event("ready")

    def run(self, *arguments: str, **environment: str) -> Process:
        return self._convertq(*arguments, **self.settings, **environment)

    def connect(self) -> psycopg.Connection[Row]:
        """An application beside the database: past the network, and never waiting for a standby."""
        options = "-c synchronous_commit=local"
        return psycopg.connect(
            self._postgres.url(self._database), autocommit=True, row_factory=dict_row, options=options
        )

    def put(self, gateway: StandInGateway, count: int, release: threading.Event | None = None) -> list[UUID]:
        """Queued jobs; with `release`, their conversions end when it is set."""
        with self.connect() as conn:
            made = []
            for _ in range(count):
                job_id = uuid4()
                if release:
                    gateway.script_for(job_id, held(release))
                made.append(self.insert(conn, job_id))
        return made

    def insert(self, conn: psycopg.Connection[Row], job_id: UUID | None = None, status: str = "queued") -> UUID:
        """As an application does it that knows of nothing but the table."""
        job_id, documents = job_id or uuid4(), self.documents(conn)
        documents.source(job_id).write_bytes(PDF)
        self.jobs.append(documents.insert(job_id, sha256=f"{job_id.int:064x}", status=status))
        return job_id

    def documents(self, conn: psycopg.Connection[Row]) -> Documents:
        return Documents(conn, self.dirs.uploads, self.dirs.results)

    def problems(self, gateway: StandInGateway, timeout: float, story: str = UNDISTURBED) -> Iterator[str]:
        """One sentence for each job that is not complete within `timeout` after one call and one counted attempt,
        with events as `story` has them, a regular expression; and for each server or process that was lost."""
        with self.connect() as conn:
            documents = self.documents(conn)
            with contextlib.suppress(AssertionError):  # what is not finished by then is listed
                documents.wait_for_all(self.jobs, timeout=timeout)
            for job_id in self.jobs:
                row, events, calls = documents.row(job_id), documents.story(job_id), len(gateway.requests_of(job_id))
                if not re.fullmatch(story, events) or (row["attempt_count"], calls) != (1, 1):
                    reasons = {event["meta"].get("reason") for event in documents.events(job_id)} - {None}
                    yield (
                        f"{self.name}: {job_id} is {row['status']} with {row['attempt_count']} attempts and {calls} "
                        f"calls ({events}; reasons {sorted(reasons)}; {row['error_message']})"
                    )
            for server in documents.servers():
                if server["status"] != "active":
                    yield f"{self.name}: the server {server['id']} is called {server['status']}"
        for host in self.hosts:
            for event in ("worker_died", "lease_lost"):
                for line in host.events(event):
                    yield f"{self.name}: {event} in the log for {line.get('job_id')}: {line.get('reason')}"


def listed(problems: Iterable[str], at_most: int = 40) -> str:
    found = list(problems)
    more = [f"and {len(found) - at_most} more"] if len(found) > at_most else []
    return f"{len(found)} problems:\n  " + "\n  ".join([*found[:at_most], *more]) if found else ""
