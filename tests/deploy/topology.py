"""What deploy/compose.yaml describes, on this machine: its own services, with an embedded PostgreSQL and S3 server.

The services keep their commands and their environment. Only addresses, ports and directories are replaced, because
here everything is on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psycopg
import yaml
from convertq.embedded.postgres import EmbeddedPostgres, free_port
from convertq.embedded.s3 import EmbeddedS3

from tests.waiting import eventually
from tests.web_client import TOKEN, Visitor

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
SAMPLE = ROOT / "gateway" / "samples" / "armazens.pdf"
DATABASE, BUCKET = "convert_jobs_dev", "convertq"
#: The services that run the image of this project.
OWN = ("gateway", "migrate", "worker", "web")


def read_compose() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return compose


@dataclass(frozen=True)
class Service:
    name: str
    command: list[str]
    environment: dict[str, str]
    health: list[str]  # empty: it has no check


class Topology:
    def __init__(self, postgres: EmbeddedPostgres, storage: EmbeddedS3) -> None:
        self.ports = {"gateway": free_port(), "worker": free_port(), "web": free_port()}
        self._replaced = {
            "@postgres:5432": f"@127.0.0.1:{postgres.port}",
            "http://storage:8333": storage.endpoint,
            "http://gateway:8000": f"http://127.0.0.1:{self.ports['gateway']}",
            "0.0.0.0": "127.0.0.1",
            "${ADMIN_TOKEN:-}": TOKEN,
        }
        self._keys = storage.environment

    def services(self, directories: Mapping[str, Path] | None = None) -> dict[str, Service]:
        """By name. `directories` stand for /app of each service; without them the paths stay."""
        described = read_compose()["services"]
        return {name: self._service(name, described[name], directories or {}) for name in OWN}

    def _service(self, name: str, described: Mapping[str, Any], directories: Mapping[str, Path]) -> Service:
        own_port = {"8000": str(self.ports.get(name)), "9109": str(self.ports["worker"])}
        environment = {
            key: self._replace(str(value), own_port) for key, value in described.get("environment", {}).items()
        }
        if "AWS_ACCESS_KEY_ID" in environment:
            environment |= {key: value for key, value in self._keys.items() if key.startswith("AWS_")}
        if name in directories:
            environment |= {
                key: value.replace("/app", str(directories[name]), 1)
                for key, value in environment.items()
                if key.endswith("_DIR")
            }
        command = [self._replace(word, own_port) for word in described["command"]]
        test = [self._replace(word, own_port) for word in described.get("healthcheck", {}).get("test", [])]
        return Service(name, command, environment, test[1:])

    def _replace(self, text: str, own_port: Mapping[str, str]) -> str:
        for old, new in self._replaced.items():
            text = text.replace(old, new)
        for old, new in own_port.items():
            text = new if text == old else text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        return text

    @property
    def web_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['web']}"


@contextlib.contextmanager
def running_parts() -> Iterator[Topology]:
    """PostgreSQL and S3, as compose.yaml describes them: with its database and its bucket."""
    with EmbeddedPostgres(port=0) as postgres, EmbeddedS3() as storage:
        with psycopg.connect(postgres.url(), autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {DATABASE}".encode())
        storage.make_bucket(BUCKET)
        yield Topology(postgres, storage)


def convert_a_document(url: str) -> None:
    """A PDF goes in at the web, through the worker and the gateway, and its XML comes out of the storage."""
    visitor = Visitor(url)
    job_id = visitor.submitted(SAMPLE.read_bytes())
    eventually(lambda: visitor.get(f"/api/jobs/{job_id}").json()["status"] == "complete", what="the conversion")
    downloaded = visitor.get(f"/api/jobs/{job_id}/download")
    assert downloaded.status_code == 200
    expected = ElementTree.parse(SAMPLE.with_suffix(".xml"))
    assert ElementTree.canonicalize(downloaded.text, strip_text=True) == ElementTree.canonicalize(
        ElementTree.tostring(expected.getroot(), "unicode"), strip_text=True
    )
    [artifact] = visitor.get(f"/api/jobs/{job_id}/artifacts").json()["artifacts"][-1:]
    assert artifact["storage"] == "s3"
    scale = Visitor(url, Authorization=f"Bearer {TOKEN}").get("/api/admin/scale").json()
    assert scale == {"wanted_workers": 0, "running_workers": 2, "queued": 0, "reason": "nothing to do"}
