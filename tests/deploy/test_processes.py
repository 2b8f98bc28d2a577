"""The services of compose.yaml as plain processes: the same commands, the same environment, no container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.deploy.topology import Service, convert_a_document, running_parts
from tests.processes import Process, run
from tests.waiting import eventually


def is_healthy(service: Service) -> bool:
    assert service.health[0] == "python3"
    return subprocess.run([sys.executable, *service.health[1:]], stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_a_pdf_passes_through_web_worker_gateway_and_storage(tmp_path: Path) -> None:
    directories = {name: tmp_path / name for name in ("worker", "web")}
    base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ} | {"LOG_FORMAT": "json"}
    with running_parts() as topology:
        services = topology.services(directories)
        migrate = run(*services["migrate"].command, environment={**base, **services["migrate"].environment})
        assert migrate.returncode == 0, migrate.stderr
        started = {
            name: Process(*services[name].command, environment={**base, **services[name].environment})
            for name in ("gateway", "worker", "web")
        }
        try:
            for name in started:
                eventually(lambda name=name: is_healthy(services[name]), what=f"{name} to be healthy")  # type: ignore
            convert_a_document(topology.web_url)
            assert {name: process.stop() for name, process in started.items()} == dict.fromkeys(started, 0)
        finally:
            leftovers = [left for process in started.values() for left in process.end()]
        assert leftovers == []
