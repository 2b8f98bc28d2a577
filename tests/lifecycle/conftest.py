"""What the lifecycle tests share: documents of a test, and a supervisor that serves a whole module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from convertq.embedded.postgres import EmbeddedPostgres
from psycopg import sql
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor

from tests.conftest import SETTINGS, Dirs, Environment, Server
from tests.documents import Documents
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, Row, eventually

OwnDocuments = Callable[[], Documents]
ShortTimeoutsSupervisor = Callable[..., Process]


@dataclass(frozen=True)
class Site:
    """One supervisor with all that it needs; tests of a module use it one after another."""

    documents: Documents
    gateway: StandInGateway
    supervisor: Process
    database_url: str


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest,
    pg_server: Server,
    template: NoopExecutor,
    admin: psycopg.Connection,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """Configured by the module's SITE; quiet about the breaker, which has tests of its own."""
    name = f"{template.dbname}_{os.urandom(4).hex()}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    admin.execute(create.format(sql.Identifier(name), sql.Identifier(template.template_dbname)))
    dirs = Dirs(tmp_path_factory.mktemp("uploads"), tmp_path_factory.mktemp("results"))
    url = pg_server.url(name)
    with (
        StandInGateway() as gateway,
        psycopg.connect(url, autocommit=True, row_factory=dict_row) as conn,
    ):
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **SETTINGS,
            "CIRCUIT_WINDOW": "1000",
            "DATABASE_URL": url,
            "GATEWAY_URL": gateway.url,
            "UPLOADS_DIR": str(dirs.uploads),
            "RESULTS_DIR": str(dirs.results),
            **request.module.SITE,
        }
        process = Process("worker", "run", environment=environment)
        try:
            process.wait_for_event("ready")
            yield Site(Documents(conn, dirs.uploads, dirs.results), gateway, process, url)
        finally:
            leftovers = process.end()
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    assert not leftovers, f"left running by the module: {leftovers}"


@pytest.fixture
def documents(conn: psycopg.Connection[Row], dirs: Dirs) -> Documents:
    return Documents(conn, dirs.uploads, dirs.results)


@pytest.fixture
def own_documents(own_postgres: EmbeddedPostgres, dirs: Dirs) -> Iterator[OwnDocuments]:
    """`own_documents()`: over a new connection to the test's own server, after each of its restarts."""
    opened: list[psycopg.Connection[Row]] = []

    def own_documents() -> Documents:
        conn = psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row)
        opened.append(conn)
        return Documents(conn, dirs.uploads, dirs.results)

    yield own_documents
    for conn in opened:
        conn.close()


@pytest.fixture
def short_timeouts_supervisor(environment: Environment) -> Iterator[ShortTimeoutsSupervisor]:
    """`short_timeouts_supervisor(WORKER_CONCURRENCY=1)`: as `supervisor`, by tests.short_timeouts_worker."""
    started: list[Process] = []
    program = (sys.executable, "-m", "tests.short_timeouts_worker")

    def short_timeouts_supervisor(**overrides: object) -> Process:
        given = environment(PYTHONPATH=str(Path(__file__).parents[2]), **overrides)
        started.append(Process("worker", "run", environment=given, program=program))
        started[-1].wait_for_event("ready")
        return started[-1]

    yield short_timeouts_supervisor
    leftovers = [name for process in started for name in process.end()]
    assert not leftovers, f"left running by the test: {leftovers}"


def wait_for_call(gateway: StandInGateway, job_id: UUID, count: int = 1, timeout: float = WAIT_SECONDS) -> None:
    """Until the gateway has the upload of this job's `count`th call."""
    eventually(lambda: len(gateway.requests_of(job_id)) >= count, timeout, f"call {count} for {job_id}")


def pid_of_holder(supervisor: Process, documents: Documents, job_id: UUID) -> int:
    """The worker that holds this job now: the latest that started in its slot."""
    holder = documents.wait_for(job_id, "processing")["leased_by"]
    supervisor.wait_for_event("worker_start", worker=holder)
    return int(supervisor.events("worker_start", worker=holder)[-1]["pid"])


def wait_until_past(documents: Documents, timestamp: datetime, timeout: float = WAIT_SECONDS) -> None:
    """By the database's clock."""
    eventually(lambda: documents.now() > timestamp, timeout, f"the clock past {timestamp}")
