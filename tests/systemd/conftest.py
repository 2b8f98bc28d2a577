"""What the tests on a real systemd share: a box with convertq installed, PostgreSQL and the reference gateway."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from convertq.embedded.binaries import find_prefix
from convertq.embedded.postgres import free_port
from psycopg.rows import dict_row

from tests.systemd.box import ROOT, Box, make_command
from tests.waiting import WAIT_SECONDS, Row, eventually

TOOL = os.environ.get("SYSTEMD_BOX", "")
#: The outage begins first and lasts while the others run; after the upgrade there is nothing left to test.
FIRST = "test_the_database_of_a_pool_goes_away"
LAST = ("test_outage.py", "test_upgrade.py")
WEB, WEB_SOCKET = "convertq-web.service", "convertq-web.socket"
SETTINGS = {
    "UPLOADS_DIR": "/var/lib/convertq/uploads",
    "RESULTS_DIR": "/var/lib/convertq/results",
    "WORKER_ENVIRONMENT": "box",
    "WORKER_HEARTBEAT_SEC": "1",
    "WORKER_HEARTBEAT_TIMEOUT_SEC": "10",
    "RESULTS_MIN_FREE_MB": "0",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def position(item: pytest.Item) -> int:
        if item.name == FIRST:
            return -1
        return LAST.index(item.path.name) + 1 if item.path.name in LAST else 0

    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(900))
            item.add_marker(pytest.mark.skipif(not TOOL, reason="SYSTEMD_BOX names no tool that boots a systemd"))
            item.add_marker(pytest.mark.skipif(os.geteuid() != 0, reason="booting a systemd needs root"))
    items.sort(key=position)


@dataclass(frozen=True)
class Database:
    """A PostgreSQL of its own in the box, with one database that belongs to convertq."""

    box: Box
    port: int

    @property
    def unit(self) -> str:
        return f"test-postgresql@{self.port}.service"

    @property
    def url(self) -> str:
        return f"postgresql://convertq@127.0.0.1:{self.port}/convert_jobs"

    @property
    def socket_url(self) -> str:
        """Without a password: the kernel tells PostgreSQL who asks."""
        return f"postgresql://convertq@/convert_jobs?host=/run/postgresql-{self.port}&port={self.port}"

    def make(self) -> None:
        self.start()
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres", autocommit=True) as conn:
            conn.execute("CREATE ROLE convertq LOGIN")
            conn.execute("CREATE DATABASE convert_jobs OWNER convertq")

    def start(self) -> None:
        self.box.systemctl("start", self.unit)
        eventually(self._answers, what="PostgreSQL to answer")

    def stop(self) -> None:
        self.box.systemctl("stop", self.unit)

    def _answers(self) -> bool:
        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def rows(self, query: str, *parameters: object) -> list[Row]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as conn:
            return conn.execute(query.encode(), parameters).fetchall()


@dataclass(frozen=True)
class Host:
    """The box as its operator sees it."""

    box: Box
    database: Database
    gateway_port: int

    def settings(self, **changes: str) -> str:
        given = {**SETTINGS, "DATABASE_URL": self.database.url, "GATEWAY_URL": f"http://127.0.0.1:{self.gateway_port}"}
        return "".join(f"{name}='{value}'\n" for name, value in {**given, **changes}.items())

    def configure(self, path: str = "/etc/convertq/convertq.env", **changes: str) -> None:
        self.box.write(path, self.settings(**changes))

    def convertq(self, *arguments: str, check: bool = True) -> str:
        """As the runbook says: by the units' user, with the units' settings."""
        script = 'set -a; . /etc/convertq/convertq.env; exec convertq "$@"'
        return self.box.run(
            "runuser", "-u", "convertq", "--", "sh", "-c", script, "convertq", *arguments, check=check
        ).stdout

    def submit(self, count: int) -> list[str]:
        """So many different documents, real ones; their ids."""
        folder = f"/srv/documents-{time.monotonic_ns()}"
        script = 'mkdir "$1"; for i in $(seq "$2"); do f="$1/$i.pdf"; cat "$3" > "$f"; echo "%% $1 $i" >> "$f"; done'
        self.box.sh(script, folder, str(count), str(ROOT / "gateway/samples/papelaria.pdf"))
        files = [f"{folder}/{number}.pdf" for number in range(1, count + 1)]
        ids = self.convertq("submit", *files).split()
        assert len(ids) == count
        return ids

    def running_servers(self) -> list[Row]:
        """Active ones whose process is there: one that was killed stays active until its silence has been heard."""
        active = self.database.rows("SELECT pid, concurrency FROM servers WHERE status = 'active' ORDER BY concurrency")
        return [row for row in active if self.box.run("test", "-d", f"/proc/{row['pid']}", check=False).returncode == 0]

    def statuses(self, ids: list[str]) -> dict[str, int]:
        query = "SELECT status, count(*)::int AS count FROM jobs WHERE id = ANY (%s::uuid[]) GROUP BY 1"
        return {row["status"]: row["count"] for row in self.database.rows(query, ids)}

    def wait_for(self, ids: list[str], status: str, count: int = 0, timeout: float = 2 * WAIT_SECONDS) -> None:
        """Until `count` of them, or all, are in that state."""
        wanted = count or len(ids)
        eventually(lambda: self.statuses(ids).get(status, 0) >= wanted, timeout, f"{wanted} jobs {status}")

    def stories(self, ids: list[str]) -> dict[str, int]:
        """How often each course of events was run through."""
        query = (
            "SELECT story, count(*)::int AS count FROM (SELECT string_agg(event_type, ' ' ORDER BY id) AS story"
            " FROM job_events WHERE job_id = ANY (%s::uuid[]) GROUP BY job_id) AS each GROUP BY 1"
        )
        return {row["story"]: row["count"] for row in self.database.rows(query, ids)}

    def assert_each_has_its_one_result(self, ids: list[str]) -> None:
        assert self.statuses(ids) == {"complete": len(ids)}
        results = set(self.box.sh("ls -A /var/lib/convertq/results").split())
        assert {f"{job_id}.xml" for job_id in ids} <= results
        assert [name for name in results if not name.endswith(".xml")] == []


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    with Box(TOOL) as box:
        box.run("useradd", "--system", "--no-create-home", "cqpostgres")
        prefix = find_prefix()
        libraries = f"{prefix.parent.name}.libs"
        box.sh(
            'mkdir -p /opt/postgresql/wheel; cp -r "$1" /opt/postgresql/wheel/pg; cp -r "$2" "/opt/postgresql/$3";'
            " chmod -R a+rX /opt/postgresql",
            str(prefix), str(prefix.parent.parent / libraries), libraries,
        )  # fmt: skip
        box.sh('cp "$1"/*.service /etc/systemd/system/', str(ROOT / "tests/systemd/units"))
        yield box


@pytest.fixture(scope="session")
def installed(box: Box) -> str:
    """What `make install` said."""
    return box.make("install")


@pytest.fixture(scope="session")
def staged(box: Box, installed: str) -> subprocess.Popen[str]:
    """A second installation, below a directory of its own; it takes its time while others are tested."""
    return box.begin(*make_command("install", "DESTDIR=/srv/stage", "PREFIX=/opt/elsewhere"))


@pytest.fixture(scope="session")
def host(box: Box, staged: subprocess.Popen[str]) -> Host:
    database, port = Database(box, free_port()), free_port()
    database.make()
    program = Path(sys.executable).with_name("convertq")
    box.write(
        "/etc/systemd/system/test-gateway.service",
        f"[Service]\nExecStart={program} gateway run --port {port} --fault delay:0.3\n",
    )
    box.systemctl("daemon-reload")
    box.systemctl("start", "test-gateway.service")
    host = Host(box, database, port)
    host.configure()
    return host


@pytest.fixture
def worker(host: Host) -> Iterator[str]:
    """The service, configured and stopped; stopped again afterwards."""
    unit = "convertq-worker.service"
    host.configure()
    yield unit
    host.box.systemctl("stop", unit, "convertq-migrate.service")
    host.box.revert(unit)
    host.box.systemctl("reset-failed", "convertq-*", check=False)


@pytest.fixture
def web_url(host: Host) -> Iterator[str]:
    """Where the web's socket listens; the service itself is not started."""
    box, port = host.box, free_port()
    host.configure(WEB_PROCESSES="1")
    box.change(WEB_SOCKET, f"[Socket]\nListenStream=\nListenStream=127.0.0.1:{port}\n")
    box.systemctl("start", WEB_SOCKET)
    yield f"http://127.0.0.1:{port}"
    box.systemctl("stop", WEB_SOCKET, WEB, "convertq-migrate.service", check=False)  # a test may have removed them
    box.revert(WEB_SOCKET)
    box.systemctl("reset-failed", "convertq-*", check=False)
