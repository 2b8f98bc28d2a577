"""A whole site in tests: a database, a gateway, workers where they are wanted, and the web server before them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor

from tests.conftest import SETTINGS, Server
from tests.documents import Documents
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.web_client import TOKEN, Site


@dataclass(frozen=True)
class Makings:
    """What a database is made with."""

    server: Server
    template: NoopExecutor
    admin: psycopg.Connection


@dataclass(frozen=True)
class WholeSite:
    """Tests of a module use it one after another, each as a visitor of its own."""

    site: Site
    documents: Documents
    gateway: StandInGateway

    @property
    def url(self) -> str:
        return self.site.url


@contextmanager
def whole_site(makings: Makings, folder: Path, *, workers: bool, **settings: object) -> Iterator[WholeSite]:
    uploads, results = folder / "uploads", folder / "results"
    uploads.mkdir()
    results.mkdir()
    with ExitStack() as up:
        url = up.enter_context(new_database(makings))
        gateway = up.enter_context(StandInGateway())
        conn = up.enter_context(psycopg.connect(url, autocommit=True, row_factory=dict_row))
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **SETTINGS,
            "DATABASE_URL": url,
            "GATEWAY_URL": gateway.url,
            "UPLOADS_DIR": str(uploads),
            "RESULTS_DIR": str(results),
            "ADMIN_TOKEN": TOKEN,
            "WEB_PROCESSES": "1",
            **{name: str(value) for name, value in settings.items()},
        }
        web = up.enter_context(_process("web", "run", "--port", "0", environment=environment))
        if workers:
            up.enter_context(_process("worker", "run", environment=environment)).wait_for_event("ready")
        yield WholeSite(Site(web), Documents(conn, uploads, results), gateway)


@contextmanager
def new_database(makings: Makings) -> Iterator[str]:
    """Migrated, and gone afterwards."""
    name = f"{makings.template.dbname}_{os.urandom(4).hex()}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    makings.admin.execute(create.format(sql.Identifier(name), sql.Identifier(makings.template.template_dbname)))
    yield makings.server.url(name)
    makings.admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def _process(*arguments: str, environment: dict[str, str]) -> Iterator[Process]:
    process = Process(*arguments, environment=environment)
    try:
        yield process
    finally:
        leftovers = process.end()
    assert not leftovers, f"left running: {leftovers}"
