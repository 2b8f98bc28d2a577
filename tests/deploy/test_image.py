"""The image: what is in it, and the services of compose.yaml as containers on a read-only file system.

Needs PODMAN, the program, and CONVERTQ_IMAGE_BASE, an image that it has. `build/wheels`, where it exists, stands for
PyPI.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from tests.deploy.topology import ROOT, Service, convert_a_document, read_compose, running_parts
from tests.waiting import eventually

PODMAN, BASE = os.environ.get("PODMAN", ""), os.environ.get("CONVERTQ_IMAGE_BASE", "")
pytestmark = pytest.mark.skipif(
    not (PODMAN and BASE), reason="PODMAN and CONVERTQ_IMAGE_BASE do not name podman and an image with Python"
)
BUILD_SECONDS, STOP_SECONDS = 500, 130
INSPECTION = """
import json, os, shutil, sys
def can_write(path):
    try:
        open(path + "/x", "w").close()
    except OSError:
        return False
    return True
print(json.dumps({
    "uid": os.getuid(),
    "writable": [path for path in ("/", "/etc", "/opt/convertq", "/usr", "/app/uploads", "/tmp") if can_write(path)],
    "tools": [name for name in ("cc", "gcc", "g++", "make", "pip") if shutil.which(name)],
    "histories": [name for name in (".bash_history", ".python_history") if os.path.exists("/root/" + name)],
}))
"""


def podman(*arguments: str, timeout: float = 60, check: bool = True) -> str:
    done = subprocess.run([PODMAN, *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0 or not check, f"podman {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def image() -> str:
    name = "localhost/convertq-test"
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/src/build/wheels"} if (ROOT / "build/wheels").is_dir() else {}
    given = {"BASE": BASE, **offline}
    options = [word for key, value in given.items() for word in ("--build-arg", f"{key}={value}")]
    options.append("--network=none" if offline else "--network=host")
    dockerfile = str(ROOT / read_compose()["services"]["worker"]["build"]["dockerfile"])
    podman("build", "-f", dockerfile, *options, "-t", name, str(ROOT), timeout=BUILD_SECONDS)
    return name


class Containers:
    """Those of one test, on the network of this host."""

    def __init__(self, image: str) -> None:
        self._image, self._mark, self._names = image, uuid.uuid4().hex[:8], list[str]()

    def name_of(self, service: Service) -> str:
        return f"convertq-{self._mark}-{service.name}"

    def run(self, service: Service, *, detached: bool = True) -> None:
        described, name = read_compose()["services"][service.name], self.name_of(service)
        assert described["read_only"]
        options = ["--read-only", *(f"--tmpfs={path}" for path in described["tmpfs"])]
        options += [f"--cap-drop={each}" for each in described["cap_drop"]]
        options += [f"--security-opt={each.split(':')[0]}" for each in described["security_opt"]]
        options += [f"--volume={name}:{volume.partition(':')[2]}" for volume in described.get("volumes", [])]
        options += [f"--env={key}={value}" for key, value in service.environment.items()]
        self._names.append(name)
        mode = ["--detach"] if detached else []
        podman("run", *mode, "--name", name, "--network=host", *options, self._image, *service.command)

    def is_healthy(self, service: Service) -> bool:
        command = [PODMAN, "exec", self.name_of(service), *service.health]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

    def stop(self, service: Service) -> int:
        """SIGTERM to PID 1, and its exit code."""
        name = self.name_of(service)
        podman("stop", f"--time={STOP_SECONDS}", name, timeout=STOP_SECONDS + 60)
        return int(podman("inspect", "--format={{.State.ExitCode}}", name))

    def remove(self) -> None:
        for name in self._names:
            podman("rm", "--force", "--volumes", "--time=0", name, check=False)
            podman("volume", "rm", "--force", name, check=False)


@pytest.fixture
def containers(image: str) -> Iterator[Containers]:
    made = Containers(image)
    yield made
    made.remove()


def test_the_image_has_no_root_no_compiler_and_nothing_to_write_to(image: str) -> None:
    options = ["--rm", "--read-only", "--network=none", "--tmpfs=/tmp", "--entrypoint=python3"]
    found = json.loads(podman("run", *options, "--volume=/app", image, "-c", INSPECTION))
    assert found == {"uid": 10001, "writable": ["/app/uploads", "/tmp"], "tools": [], "histories": []}


def test_one_image_serves_worker_web_gateway_and_commands(containers: Containers) -> None:
    with running_parts() as topology:
        services = topology.services()
        containers.run(services["migrate"], detached=False)
        running = [services[name] for name in ("gateway", "worker", "web")]
        for service in running:
            containers.run(service)
        for service in running:
            eventually(lambda service=service: containers.is_healthy(service), what=f"{service.name}: healthy")  # type: ignore
        convert_a_document(topology.web_url)
        assert {service.name: containers.stop(service) for service in running} == {"gateway": 0, "worker": 0, "web": 0}
