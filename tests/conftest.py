"""The fixtures: each test has its own database, directories and gateway, and leaves no process."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
import pytest
from convertq.embedded.binaries import EmbeddedError
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.embedded.s3 import EmbeddedS3
from convertq.queue.database import connection as db
from convertq.queue.database import migrations
from convertq.queue.database.url import parse_database_url
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from pytest_postgresql import factories
from pytest_postgresql.executors import NoopExecutor

from tests.copied_postgres import CopiedPostgres
from tests.documents import Documents
from tests.file_order import start_longest_first
from tests.processes import Process
from tests.stand_in_gateway import StandInGateway
from tests.storage import BUCKET, Storage
from tests.waiting import WAIT_SECONDS, Row
from tests.web_client import TOKEN, Site

Connect = Callable[[], psycopg.Connection[Row]]
Environment = Callable[..., dict[str, str]]
Convertq = Callable[..., Process]
Supervisor = Callable[..., Process]
Web = Callable[..., Site]

#: A shell ignores these signals for a job in the background, and so does nohup. What is ignored stays ignored in every
#: process that a test starts; what has a handler gets the default there.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

#: Short enough for tests, long enough for a busy machine. A call that a test holds must not time out before the test
#: gives up: a test of timeouts sets its own.
SETTINGS = {
    "WORKER_CONCURRENCY": "2",
    "WORKER_POLL_INTERVAL_MS": "100",
    "WORKER_SHUTDOWN_GRACE_SEC": "10",
    "GATEWAY_TIMEOUT_MS": f"{WAIT_SECONDS * 1000:.0f}",
    "RETRY_BASE_DELAY_MS": "10",
    "RETRY_JITTER_MAX_MS": "10",
    "CIRCUIT_COOLDOWN_MS": "200",
    "RESULTS_MIN_FREE_MB": "0",
    "LOG_FORMAT": "json",
}


@dataclass(frozen=True)
class Server:
    """What pytest-postgresql reads of the fixture that it depends on."""

    host: str
    port: int
    user: str
    password: str | None = None
    maintenance_dbname: str = "postgres"
    options: str = ""
    template_dbname: str | None = None

    def url(self, database: str) -> str:
        """As a URL, with the host as a parameter because it may be a socket's directory."""
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        where = urlencode({"host": self.host, "port": self.port})
        return f"postgresql://{quote(self.user, safe='')}{secret}@/{database}?{where}"


@dataclass(frozen=True)
class Dirs:
    uploads: Path
    results: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    start_longest_first(items)


@pytest.fixture(scope="session")
def pg_server() -> Iterator[Server]:
    """The server named by CONVERTQ_TEST_DATABASE_URL, whose user needs CREATEDB; else an embedded one."""
    if url := os.environ.get("CONVERTQ_TEST_DATABASE_URL"):
        yield existing_server(url)
        return
    with EmbeddedPostgres() as server:
        yield Server(server.host, server.port, server.user)


def existing_server(url: str) -> Server:
    named = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    return Server(
        host=named.get("host") or os.environ.get("PGHOST") or "/var/run/postgresql",
        port=int(named.get("port") or os.environ.get("PGPORT") or 5432),
        user=named.get("user") or os.environ.get("PGUSER") or "postgres",
        password=named.get("password") or os.environ.get("PGPASSWORD"),
        maintenance_dbname=named.get("dbname") or "postgres",
    )


def migrate(url: str) -> None:
    parsed = parse_database_url(url)
    with db.connect(parsed, "convertq:tests") as conn:
        migrations.migrate(conn, parsed.schema)


def load_template(*, host: str, port: int, user: str, dbname: str, password: str | None, autocommit: bool) -> None:
    migrate(Server(host, port, user, password).url(dbname))


# The pid keeps two runs on one server apart; pytest-postgresql appends gw0, gw1, … under xdist.
template = factories.postgresql_noproc(
    depends_on="pg_server", dbname=f"convertq_test_{os.getpid()}_", load=[load_template]
)


@pytest.fixture(scope="session")
def admin(pg_server: Server) -> Iterator[psycopg.Connection]:
    """The connection that creates and drops the tests' databases."""
    with psycopg.connect(pg_server.url(pg_server.maintenance_dbname), autocommit=True) as conn:
        yield conn


@pytest.fixture
def database_url(pg_server: Server, template: NoopExecutor, admin: psycopg.Connection) -> Iterator[str]:
    """A migrated database of this test's own."""
    name = f"{template.dbname}_{os.urandom(4).hex()}"  # never reused: a process that lingers finds nothing
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    admin.execute(create.format(sql.Identifier(name), sql.Identifier(template.template_dbname)))
    yield pg_server.url(name)
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def connect(database_url: str) -> Iterator[Connect]:
    """Makes connections in autocommit with rows as dicts; closes them all at the end."""
    with contextlib.ExitStack() as opened:

        def connect() -> psycopg.Connection[Row]:
            conn = psycopg.connect(database_url, autocommit=True, row_factory=dict_row)
            opened.callback(conn.close)
            return conn

        yield connect


@pytest.fixture
def conn(connect: Connect) -> psycopg.Connection[Row]:
    return connect()


@pytest.fixture(scope="session")
def migrated_server() -> Iterator[EmbeddedPostgres]:
    """The server whose files `own_postgres` copies; it is stopped."""
    with EmbeddedPostgres(port=0) as server:
        migrate(server.url())
        server.stop()
        yield server


@pytest.fixture
def own_postgres(migrated_server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A migrated server that the test may stop and start; it listens on TCP."""
    with CopiedPostgres(migrated_server) as server:
        yield server


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    made = Dirs(tmp_path / "uploads", tmp_path / "results")
    made.uploads.mkdir()
    made.results.mkdir()
    return made


@pytest.fixture(scope="session")
def s3_server() -> Iterator[EmbeddedS3]:
    """One S3 server for all tests of a process, started by the first of them."""
    try:
        server = EmbeddedS3()
    except EmbeddedError as reason:
        pytest.skip(str(reason))
    with server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture
def storage(s3_server: EmbeddedS3) -> Storage:
    """A prefix of this test's own in the bucket."""
    return Storage(s3_server)


@pytest.fixture
def gateway() -> Iterator[StandInGateway]:
    with StandInGateway() as standing_in:
        yield standing_in


@pytest.fixture
def test_store(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The settings of the store that CONVERTQ_TEST_STORE names: none for directories."""
    if os.environ.get("CONVERTQ_TEST_STORE") != "s3":
        yield {}
        return
    storage = Storage(request.getfixturevalue("s3_server"))
    Documents.fetch = storage.fetch
    yield storage.environment
    Documents.fetch = None


@pytest.fixture
def environment(
    database_url: str, dirs: Dirs, gateway: StandInGateway, test_store: dict[str, str]
) -> Environment:  # fmt: skip
    """`environment(GATEWAY_TIMEOUT_MS=300)`: variables for a convertq process; None leaves one out."""
    given = {
        **test_store,
        "DATABASE_URL": database_url,
        "GATEWAY_URL": gateway.url,
        "UPLOADS_DIR": str(dirs.uploads),
        "RESULTS_DIR": str(dirs.results),
    }
    # Nothing else of this process's environment: a proxy or a DATABASE_URL of the developer's.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}

    def environment(**overrides: object) -> dict[str, str]:
        chosen = {**kept, **SETTINGS, **given, **overrides}
        return {name: str(value) for name, value in chosen.items() if value is not None}

    return environment


@pytest.fixture
def convertq(environment: Environment) -> Iterator[Convertq]:
    """`convertq("gateway", "run", **overrides)`: starts it in the background; fails if anything is left."""
    started: list[Process] = []

    def convertq(*arguments: str, **overrides: object) -> Process:
        process = Process(*arguments, environment=environment(**overrides))
        started.append(process)
        return process

    yield convertq
    leftovers = [name for process in started for name in process.end()]
    assert not leftovers, f"left running by the test: {leftovers}"


@pytest.fixture
def supervisor(convertq: Convertq) -> Supervisor:
    """`supervisor(WORKER_CONCURRENCY=4)`: starts `convertq worker run` and waits until it is ready."""

    def supervisor(**overrides: object) -> Process:
        process = convertq("worker", "run", **overrides)
        process.wait_for_event("ready")
        return process

    return supervisor


@pytest.fixture
def web(convertq: Convertq) -> Web:
    """`web(SESSION_MAX_ACTIVE=2)`: starts `convertq web run` and waits until it listens."""

    def web(**overrides: object) -> Site:
        settings = {"ADMIN_TOKEN": TOKEN, "WEB_PROCESSES": 1, **overrides}
        return Site(convertq("web", "run", "--port", "0", **settings))

    return web


@pytest.fixture
def site(web: Web) -> Site:
    return web()
