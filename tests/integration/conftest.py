"""Owns what several integration tests share: a worker's connection, what doctor is given, a terminal, a web server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from convertq.worker.checks.finding import Limits, Look
from convertq.worker.config import read_config
from convertq.worker.database_url import parse_database_url
from convertq.worker.db import Database, connect
from convertq.worker.doctor import ask
from convertq.worker.files import Files
from convertq.worker.job import Job
from psycopg import sql
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor

from tests.conftest import SETTINGS, Dirs, Environment, Server
from tests.findings import LookAt
from tests.jobs import Conn, claim, complete
from tests.processes import Process
from tests.web_client import TOKEN, Site, Visitor


@pytest.fixture
def look_at(environment: Environment) -> Iterator[LookAt]:
    """`look_at(limits=Limits(…), WORKER_CONCURRENCY=9)`: what a check is given, with a connection of convertq's own."""
    with ExitStack() as opened:

        def look_at(limits: Limits | None = None, **settings: object) -> Look:
            config = read_config(environment(**settings))
            database = Database(connect(config.database, "convertq:doctor"), config.database.schema)
            opened.callback(database.close)
            look = Look(config, Files(config.uploads_dir, config.results_dir), database, limits=limits or Limits())
            ask(look)
            return look

        yield look_at


@pytest.fixture
def bounded(database_url: str) -> Iterator[Conn]:
    """A connection as a worker has it, with its limits."""
    with connect(parse_database_url(database_url), "convertq:settlement") as conn:
        yield conn


@pytest.fixture
def files(dirs: Dirs) -> Files:
    return Files(dirs.uploads, dirs.results)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A terminal as an operator has it: `tmux("new-session", …)`, and what it printed."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    command = ["tmux", "-u", "-f", os.devnull, "-S", str(tmp_path / "tmux")]

    def tmux(*arguments: str) -> str:
        asked = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=20, check=False)
        return asked.stdout

    yield tmux
    tmux("kill-server")


@dataclass(frozen=True)
class Place:
    """A web server, the database behind it, and its directories."""

    site: Site
    conn: Conn
    dirs: Dirs
    environment: dict[str, str]

    def claim(self, job_id: UUID) -> Job:
        """This one, whatever else is queued; as a worker that was registered long ago."""
        first = "UPDATE jobs SET priority = 1 + (SELECT max(priority) FROM jobs) WHERE id = %s"
        self.conn.execute(first, [job_id])
        job = claim(self.conn)
        assert job.id == job_id
        return job

    def complete(self, job_id: UUID, xml: bytes = b"<invoice/>\n") -> None:
        """As a worker does: the file first, then the row."""
        (self.dirs.results / f"{job_id}.xml").write_bytes(xml)
        assert complete(self.conn, self.claim(job_id))


@pytest.fixture(scope="module")
def place(
    pg_server: Server, template: NoopExecutor, admin: psycopg.Connection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    name = f"{template.dbname}_{os.urandom(4).hex()}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    admin.execute(create.format(sql.Identifier(name), sql.Identifier(template.template_dbname)))
    home = tmp_path_factory.mktemp("web")
    dirs = Dirs(home / "uploads", home / "results")
    environment = {
        **SETTINGS, "PATH": os.environ["PATH"], "DATABASE_URL": pg_server.url(name), "UPLOADS_DIR": str(dirs.uploads),
        "RESULTS_DIR": str(dirs.results), "ADMIN_TOKEN": TOKEN, "WEB_PROCESSES": "1", "MAX_UPLOAD_BYTES": "1000000",
        "SESSION_MAX_ACTIVE": "10", "MAPPINGS_ALLOWED": "pt_simon_invoice_v1,text_v1",
    }  # fmt: skip
    process = Process("web", "run", "--port", "0", environment=environment)
    try:
        site = Site(process)
        with psycopg.connect(pg_server.url(name), autocommit=True, row_factory=dict_row) as conn:
            yield Place(site, conn, dirs, environment)
    finally:
        leftovers = process.end()
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    assert not leftovers


@pytest.fixture
def visitor(place: Place) -> Visitor:
    return place.site.visitor()


@pytest.fixture
def operator(place: Place) -> Visitor:
    return place.site.operator()


@pytest.fixture
def impatient(environment: Environment) -> Iterator[Site]:
    """A web server that waits for a second where others wait for half a minute."""
    program = (sys.executable, "-m", "tests.impatient_web")
    settings = environment(WEB_PROCESSES=1, ADMIN_TOKEN=TOKEN, PYTHONPATH=str(Path(__file__).parents[2]))
    process = Process("web", "run", "--port", "0", environment=settings, program=program)
    try:
        yield Site(process)
    finally:
        assert process.end() == []
