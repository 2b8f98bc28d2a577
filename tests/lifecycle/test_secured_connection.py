"""A database that asks for a password and for TLS: URL, service file, password file and environment, in every process.

The password is never printed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import pytest
from convertq.embedded.postgres import free_port

from tests.conftest import Convertq, Environment, Supervisor, Web
from tests.processes import run
from tests.secured_postgres import PASSWORD, ROLE, Certificates, SecuredPostgres, TlsPostgres, start_with_tls
from tests.waiting import eventually
from tests.web_client import PDF, Site

Settings = dict[str, object]
Migrated = Callable[[Settings], dict[str, str]]
SESSIONS = """
SELECT DISTINCT coalesce(ssl, false) FROM pg_stat_activity LEFT JOIN pg_stat_ssl USING (pid)
 WHERE application_name LIKE 'convertq%'
"""


@dataclass(frozen=True)
class Place:
    """A database of this test's own on a secured server, and where its files are written."""

    server: SecuredPostgres
    database: str
    folder: Path
    certificates: Certificates | None

    @property
    def at(self) -> str:
        return f"localhost:{self.server.port}/{self.database}"

    @property
    def tls(self) -> dict[str, str]:
        """Parameters of libpq."""
        if self.certificates is None:
            return {}
        return {"sslmode": "verify-full", "sslrootcert": str(self.certificates.folder / "ca.crt")}

    def url(self, user: str = ROLE, **more: object) -> str:
        parameters = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in {**self.tls, **more}.items())
        return f"postgresql://{user}@{self.at}?{parameters}"

    def password_file(self, password: str = PASSWORD) -> Path:
        return self.write("passwords", f"localhost:*:*:{ROLE}:{password.replace(':', chr(92) + ':')}\n")

    def service_file(self, **more: object) -> Path:
        given = {"host": "localhost", "port": self.server.port, "dbname": self.database, "user": ROLE, **self.tls}
        lines = [f"{name}={value}" for name, value in {**given, **more}.items()]
        return self.write("services", "\n".join(["[queue]", *lines, ""]))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path


def in_the_url(place: Place) -> Settings:
    return {"DATABASE_URL": place.url(f"{ROLE}:{quote(PASSWORD, safe='')}")}


def in_a_password_file(place: Place) -> Settings:
    return {"DATABASE_URL": place.url(passfile=place.password_file())}


def in_the_environment(place: Place) -> Settings:
    named = {"PGSSLMODE": place.tls.get("sslmode"), "PGSSLROOTCERT": place.tls.get("sslrootcert")}
    return {"DATABASE_URL": f"postgresql://{ROLE}@{place.at}", "PGPASSFILE": place.password_file(), **named}


def in_a_service_file(place: Place) -> Settings:
    return {
        "DATABASE_URL": "postgresql://",
        "PGSERVICE": "queue",
        "PGSERVICEFILE": place.service_file(password=PASSWORD),
    }


def in_both_files(place: Place) -> Settings:
    services = place.service_file()
    return {
        "DATABASE_URL": "postgresql:///?service=queue", "PGSERVICEFILE": services, "PGPASSFILE": place.password_file(),
    }  # fmt: skip


def of_several_hosts(place: Place) -> Settings:
    """The first of them is away."""
    hosts = {"host": "localhost,localhost", "port": f"{free_port()},{place.server.port}"}
    return {
        "DATABASE_URL": "postgresql:///?service=queue", "PGSERVICEFILE": place.service_file(**hosts),
        "PGPASSFILE": place.password_file(),
    }  # fmt: skip


WAYS: dict[str, Callable[[Place], Settings]] = {
    way.__name__: way
    for way in (
        in_the_url, in_a_password_file, in_the_environment, in_a_service_file, in_both_files, of_several_hosts,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes the certificates, is not installed")
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_server(certificates: Certificates) -> Iterator[TlsPostgres]:
    server = start_with_tls(lambda: TlsPostgres(certificates))
    with contextlib.closing(server):
        server.execute("CREATE ROLE {} LOGIN", ROLE)
        server.execute("CREATE ROLE certified LOGIN IN ROLE {}", ROLE)
        yield server


@pytest.fixture(scope="module")
def plain_server() -> Iterator[SecuredPostgres]:
    with SecuredPostgres() as server:
        server.execute("CREATE ROLE {} LOGIN", ROLE)
        yield server


@pytest.fixture
def plain_place(plain_server: SecuredPostgres, tmp_path: Path) -> Place:
    plain_server.set_password(PASSWORD)
    return Place(plain_server, plain_server.make_database(), tmp_path, None)


@pytest.fixture
def tls_place(tls_server: TlsPostgres, certificates: Certificates, tmp_path: Path) -> Place:
    tls_server.set_password(PASSWORD)
    return Place(tls_server, tls_server.make_database(), tmp_path, certificates)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """With TLS if that is possible here. The tests that need it are skipped otherwise, with the reason."""
    try:
        found = request.getfixturevalue("tls_place")
    except pytest.skip.Exception:
        found = request.getfixturevalue("plain_place")
    assert isinstance(found, Place)
    return found


@pytest.fixture
def migrated(environment: Environment) -> Migrated:
    """`migrated(settings)`: the environment with these settings, in which `convertq migrate` has worked."""

    def migrated(settings: Settings) -> dict[str, str]:
        given = environment(**settings)
        done = run("migrate", environment=given)
        assert done.returncode == 0, done.stderr
        return given

    return migrated


def assert_nothing_shows(text: str) -> None:
    assert PASSWORD not in text
    assert quote(PASSWORD, safe="") not in text


def accepted_upload(site: Site) -> UUID | None:
    answer = site.visitor().submit(PDF + b"%another\n")
    return UUID(answer.json()["id"]) if answer.status_code in (200, 201) else None


def wait_for_result(environment: dict[str, str], job_id: str) -> None:
    eventually(lambda: run("result", job_id, environment=environment).returncode == 0, what="the result")


@pytest.mark.parametrize("way", WAYS)
def test_every_process_connects_and_none_shows_the_password(
    place: Place, migrated: Migrated, supervisor: Supervisor, web: Web, tmp_path: Path, way: str
) -> None:
    quiet = {"WORKER_POLL_INTERVAL_MS": 60_000, "WORKER_CONCURRENCY": 1, "METRICS_PORT": free_port()}
    settings = {**WAYS[way](place), **quiet}
    environment = migrated(settings)
    worker, site = supervisor(**settings), web(**settings)
    (tmp_path / "a.pdf").write_bytes(PDF)
    submitted = run("submit", str(tmp_path / "a.pdf"), environment=environment)
    assert submitted.returncode == 0, submitted.stderr
    wait_for_result(environment, submitted.stdout.split()[0])  # the notification has come: the next poll is far away
    uploaded = site.visitor().submitted(PDF + b"%another\n")
    wait_for_result(environment, str(uploaded))
    assert place.server.execute(SESSIONS) == [(bool(place.tls),)]
    for command in (["config"], ["config", "--json"], ["doctor"], ["doctor", "--json"], ["servers"], ["status"]):
        done = run(*command, environment=environment)
        assert_nothing_shows(done.stdout + done.stderr)
    assert site.process.stop() == 0
    assert worker.stop() == 0
    assert_nothing_shows("\n".join(worker.lines + site.process.lines))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"host": "127.0.0.1"}, "does not match host name"),
        ({"sslrootcert": "other.crt"}, "certificate verify failed"),
        ({"sslrootcert": "missing.crt"}, "does not exist"),
        ({"password": f"{PASSWORD}?"}, "password authentication failed"),
    ],
)
def test_a_refused_connection_is_explained_without_the_password(
    tls_place: Place, environment: Environment, convertq: Convertq, wrong: dict[str, str], words: str
) -> None:
    """The worker waits: a certificate and a password can be replaced without a restart."""
    assert tls_place.certificates
    if file := wrong.get("sslrootcert"):
        wrong = {"sslrootcert": str(tls_place.certificates.folder / file)}
    services = tls_place.service_file(**{"password": PASSWORD, **wrong})
    settings: Settings = {"DATABASE_URL": "postgresql:///?service=queue", "PGSERVICEFILE": services}
    done = [run(command, environment=environment(**settings)) for command in ("migrate", "list", "doctor")]
    assert [words in each.stdout + each.stderr for each in done] == [True, True, True]
    assert 0 not in [each.returncode for each in done]
    worker = convertq("worker", "run", **settings)
    assert words in worker.wait_for_event("db_down")["error_message"]
    assert worker.stop() == 0
    shown = [each.stdout + each.stderr for each in done]
    assert_nothing_shows("\n".join(shown + worker.lines))


def test_a_password_that_is_replaced_in_its_file_serves_the_next_connection(
    place: Place, migrated: Migrated, supervisor: Supervisor, web: Web
) -> None:
    settings = in_a_password_file(place)
    environment = migrated(settings)
    worker, site = supervisor(**settings), web(**settings)
    place.server.set_password("another")
    place.password_file("another")
    place.server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'convertq'")
    uploaded = eventually(lambda: accepted_upload(site), what="an upload over a new connection")
    wait_for_result(environment, str(uploaded))
    assert site.process.stop() == 0
    assert worker.stop() == 0


def test_the_supervisor_keeps_its_session_when_a_worker_dies(
    tls_place: Place, migrated: Migrated, supervisor: Supervisor
) -> None:
    """A fork has a copy of the TLS session: if the child closed it, the server would end the parent's."""
    settings = {**in_a_password_file(tls_place), "WORKER_CONCURRENCY": 1}
    migrated(settings)
    worker = supervisor(**settings)
    [died] = worker.children()
    os.kill(died, signal.SIGKILL)
    worker.wait_for_event("worker_start", count=2)
    assert worker.stop() == 0
    assert worker.events("db_down") == []


def test_a_client_certificate_takes_the_place_of_the_password(
    tls_place: Place, migrated: Migrated, supervisor: Supervisor, tmp_path: Path
) -> None:
    assert tls_place.certificates
    key = tls_place.certificates.encrypt_client_key(PASSWORD)
    client = {"sslcert": tls_place.certificates.folder / "client.crt", "sslkey": key, "sslpassword": PASSWORD}
    settings: Settings = {"DATABASE_URL": tls_place.url("certified", **client, options="-c role=convertq")}
    environment = migrated(settings)
    worker = supervisor(**settings)
    (tmp_path / "a.pdf").write_bytes(PDF)
    submitted = run("submit", str(tmp_path / "a.pdf"), environment=environment)
    wait_for_result(environment, submitted.stdout.split()[0])
    shown = [run(command, environment=environment) for command in ("config", "doctor")]
    assert worker.stop() == 0
    assert_nothing_shows("\n".join([*(each.stdout + each.stderr for each in shown), *worker.lines]))
