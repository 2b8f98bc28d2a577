"""What several integration tests share: a worker's connection, what doctor is given, a terminal, a web server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from convertq.queue.config import read_config
from convertq.queue.database.connection import connect
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.doctor.examination import inspect_server
from convertq.queue.doctor.finding import CheckContext, Limits
from convertq.queue.job import ClaimedJob
from convertq.queue.store import open_store
from psycopg import sql
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor

from tests.conftest import SETTINGS, Dirs, Environment, Server
from tests.files import Files
from tests.findings import MakeContext
from tests.jobs import Conn, claim, complete
from tests.processes import Process
from tests.waiting import WAIT_SECONDS
from tests.web_client import TOKEN, Site, Visitor


@pytest.fixture
def make_context(environment: Environment) -> Iterator[MakeContext]:
    """`make_context(limits=Limits(…), WORKER_CONCURRENCY=9)`: a check's context, with its own connection."""
    with ExitStack() as opened:

        def make_context(limits: Limits | None = None, **settings: object) -> CheckContext:
            config = read_config(environment(**settings))
            database = Database(connect(config.database, "convertq:doctor"), config.database.schema)
            opened.callback(database.close)
            context = CheckContext(config, open_store(config), database, limits=limits or Limits())
            inspect_server(context)
            return context

        yield make_context


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
        asked = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )
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

    def claim(self, job_id: UUID) -> ClaimedJob:
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


OpenPlace = Callable[..., AbstractContextManager[Place]]


@pytest.fixture(scope="module")
def open_place(
    pg_server: Server, template: NoopExecutor, admin: psycopg.Connection, tmp_path_factory: pytest.TempPathFactory
) -> OpenPlace:
    """`open_place(program, MAX_UPLOAD_BYTES="5")`: a web server with a database and directories of its own."""

    @contextmanager
    def open_place(program: Sequence[str] | None = None, **settings: str) -> Iterator[Place]:
        name = f"{template.dbname}_{os.urandom(4).hex()}"
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        admin.execute(create.format(sql.Identifier(name), sql.Identifier(template.template_dbname)))
        home = tmp_path_factory.mktemp("web")
        dirs = Dirs(home / "uploads", home / "results")
        environment = {
            **SETTINGS, "PATH": os.environ["PATH"], "DATABASE_URL": pg_server.url(name), "ADMIN_TOKEN": TOKEN,
            "UPLOADS_DIR": str(dirs.uploads), "RESULTS_DIR": str(dirs.results), "WEB_PROCESSES": "1", **settings,
        }  # fmt: skip
        process = Process(
            "web", "run", "--port", "0", environment=environment, **({"program": program} if program else {})
        )
        try:
            site = Site(process)
            with psycopg.connect(pg_server.url(name), autocommit=True, row_factory=dict_row) as conn:
                yield Place(site, conn, dirs, environment)
        finally:
            leftovers = process.end()
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        assert not leftovers

    return open_place


@pytest.fixture(scope="module")
def place(open_place: OpenPlace) -> Iterator[Place]:
    """The web server that the tests of one file share."""
    limits = {"MAX_UPLOAD_BYTES": "1000000", "SESSION_MAX_ACTIVE": "10"}
    with open_place(MAPPINGS_ALLOWED="pt_simon_invoice_v1,text_v1", **limits) as place:
        yield place


@pytest.fixture(scope="module")
def short_timeouts(open_place: OpenPlace) -> Iterator[Place]:
    """Another one, which waits for two seconds where others wait for half a minute."""
    program = (sys.executable, "-m", "tests.short_timeouts_web")
    with open_place(program, PYTHONPATH=str(Path(__file__).parents[2])) as place:
        yield place


@pytest.fixture
def visitor(place: Place) -> Visitor:
    return place.site.visitor()


@pytest.fixture
def operator(place: Place) -> Visitor:
    return place.site.operator()


@pytest.fixture
def slow_disk(open_place: OpenPlace) -> Iterator[Site]:
    """A web server on a disk that takes a second for each fsync."""
    program = (sys.executable, "-m", "tests.slow_disk_web")
    with open_place(program, PYTHONPATH=str(Path(__file__).parents[2])) as place:
        yield place.site
