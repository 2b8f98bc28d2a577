"""PostgreSQL servers in tests that ask for a password, without and with TLS."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from convertq.embedded.binaries import EmbeddedError, find_prefix
from convertq.embedded.postgres import FAST, EmbeddedPostgres
from psycopg import sql

ROLE = "convertq"
PASSWORD = "never/print:this@secret"
#: The superuser of the tests comes in by the socket; everybody else by TCP, with what the server asks for.
WITH_PASSWORD = "local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
WITH_TLS = """local all postgres trust
hostssl all certified 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
"""


class SecuredPostgres(EmbeddedPostgres):
    """`url` is that of its superuser, by the socket."""

    rules = WITH_PASSWORD

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings={**FAST, **(settings or {})}, port=0)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self.user}@/{database}?host={self._folder.path}&port={self.port}"

    def execute(self, statement: LiteralString, *names: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """`names` are identifiers for the placeholders of the statement."""
        with psycopg.connect(self.url(database), autocommit=True) as conn:
            done = conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
            return done.fetchall() if done.description else []

    def set_password(self, password: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as conn:
            conn.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(ROLE), sql.Literal(password)))

    def make_database(self) -> str:
        name = f"secured_{os.urandom(4).hex()}"
        self.execute("CREATE DATABASE {} OWNER {}", name, ROLE)
        return name

    def _initialise(self) -> None:
        super()._initialise()
        (self._data / "pg_hba.conf").write_text(self.rules)


class TlsPostgres(SecuredPostgres):
    """Its certificate is for `localhost`; `authority` is the certificate that has signed it."""

    rules = WITH_TLS

    def __init__(self, certificates: Certificates) -> None:
        files = {"ssl_cert_file": "server.crt", "ssl_key_file": "server.key", "ssl_ca_file": "ca.crt"}
        super().__init__({"ssl": "on", **files})
        self._certificates = certificates

    def _initialise(self) -> None:
        super()._initialise()
        for name in ("ca.crt", "server.crt", "server.key"):
            copied = self._data / name
            shutil.copyfile(self._certificates.folder / name, copied)
            copied.chmod(0o600)
            if self._folder.account:
                os.chown(copied, self._folder.account.pw_uid, self._folder.account.pw_gid)


class Certificates:
    """Made by the program openssl: an authority, the server's certificate, a client's, and another authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._make_authority("ca")
        self._make_authority("other")
        self._sign("server", "localhost")
        self._sign("client", "certified")

    def encrypt_client_key(self, password: str) -> Path:
        encrypted = self.folder / "encrypted.key"
        self._openssl("pkey", "-in", "client.key", "-aes256", "-passout", f"pass:{password}", "-out", encrypted.name)
        encrypted.chmod(0o600)
        return encrypted

    def _make_authority(self, name: str) -> None:
        self._request(name, f"the tests' {name}", "-x509", "-out", f"{name}.crt")

    def _sign(self, name: str, subject: str) -> None:
        self._request(name, subject, "-addext", f"subjectAltName=DNS:{subject}", "-out", f"{name}.csr")
        signed_by = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signed_by, "-days", "2", "-out", f"{name}.crt")

    def _request(self, name: str, subject: str, *arguments: str) -> None:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
        days = ("-days", "2") if "-x509" in arguments else ()
        self._openssl("req", *key, "-subj", f"/CN={subject}", *days, *arguments)
        (self.folder / f"{name}.key").chmod(0o600)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


def prefixes() -> Iterator[Path]:
    """The embedded programs, and those of the system: the embedded ones may be built without TLS."""
    yield find_prefix()
    yield from sorted(Path("/usr/lib/postgresql").glob("*"), key=lambda path: path.name, reverse=True)


def start_with_tls(make: Callable[[], TlsPostgres]) -> TlsPostgres:
    """Skips the test where none of the servers here can do TLS."""
    for prefix in prefixes():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CONVERTQ_PG_PREFIX", str(prefix))
            server = make()
        try:
            return server.start()
        except EmbeddedError as error:
            if "SSL is not supported by this build" not in str(error):
                raise
    pytest.skip("every PostgreSQL here was built without TLS")
