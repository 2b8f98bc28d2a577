"""The units under a real systemd: start, readiness, status, stop, watchdog, hardening."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from convertq.cli.embedded import EmbeddedPostgres, free_port

from tests.waiting import eventually

BOX = os.environ.get("SYSTEMD_BOX", "")
ROOT = Path(__file__).parents[2]
SYSTEM_PYTHON = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
Run = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [
    pytest.mark.skipif(not BOX, reason="SYSTEMD_BOX does not name a tool that boots a real systemd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="booting a systemd needs root"),
    pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"no {SYSTEM_PYTHON} that the unit's user can read"),
]


@pytest.fixture(scope="module")
def box() -> Iterator[Run]:
    """A booted systemd with the units installed, its network shared with this machine."""
    environment = {
        **os.environ, "SYSTEMD_BOX_NAME": f"convertq-{os.getpid()}", "SYSTEMD_BOX_NET": "host",
        "SYSTEMD_BOX_DIR": f"/run/convertq-box-{os.getpid()}", "SYSTEMD_BOX_BIND": str(ROOT),
    }  # fmt: skip

    def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([BOX, "run", *command], env=environment, text=True, capture_output=True)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    subprocess.run([BOX, "up"], env=environment, check=True)
    try:
        run("useradd", "--system", "--no-create-home", "convertq")
        run(
            "sh",
            "-c",
            f"cp '{ROOT}'/systemd/*.service '{ROOT}'/systemd/*.socket '{ROOT}'/systemd/*.timer /etc/systemd/system/",
        )
        run("mkdir", "-p", "/etc/convertq")
        yield run
    finally:
        subprocess.run([BOX, "down"], env=environment, check=False)
        shutil.rmtree(f"/run/convertq-box-{os.getpid()}", ignore_errors=True)


def test_the_units_are_hardened(box: Run) -> None:
    for unit in ("convertq-worker", "convertq-reclaim", "convertq-cleanup", "convertq-web"):
        judged = box("systemd-analyze", "security", "--no-pager", f"{unit}.service").stdout
        exposure = float(judged.rpartition("Overall exposure level for")[2].split(":")[1].split()[0])
        assert exposure <= 2.0, judged


def test_the_units_are_well_formed(box: Run) -> None:
    units = ("convertq-worker.service", "convertq-reclaim.timer", "convertq-web.service", "convertq-web.socket")
    verified = box("systemd-analyze", "verify", "--man=no", *units, check=False)
    complaints = [line for line in verified.stderr.splitlines() if "convertq" in line and "/opt/convertq" not in line]
    assert complaints == []


def _property(box: Run, name: str, unit: str = "convertq-worker.service") -> str:
    return box("systemctl", "show", "--value", "-p", name, unit).stdout.strip()


def test_the_worker_starts_says_so_and_stops(box: Run, own_postgres: EmbeddedPostgres) -> None:
    settings = f"DATABASE_URL={own_postgres.url()}\nGATEWAY_URL=http://127.0.0.1:9\n"
    settings += "UPLOADS_DIR=/var/lib/convertq/uploads\nRESULTS_DIR=/var/lib/convertq/results\n"
    box("sh", "-c", f"cat > /etc/convertq/convertq.env <<'END'\n{settings}END")
    _install_as_opt(box)
    started = box("systemctl", "start", "convertq-worker.service", check=False)
    assert started.returncode == 0, box("journalctl", "-u", "convertq-worker.service", "--no-pager").stdout
    assert _property(box, "ActiveState") == "active"
    eventually(lambda: "idle of 4 workers" in _property(box, "StatusText"), what="a status with counts")
    box("systemctl", "stop", "convertq-worker.service")
    assert _property(box, "Result") == "success"
    assert _property(box, "ExecMainStatus") == "0"


def test_the_web_is_started_by_its_first_visitor_and_no_visitor_meets_its_restart(
    box: Run, own_postgres: EmbeddedPostgres
) -> None:
    settings = f"DATABASE_URL={own_postgres.url()}\nUPLOADS_DIR=/var/lib/convertq/uploads\n"
    settings += "RESULTS_DIR=/var/lib/convertq/results\nWEB_PROCESSES=1\n"
    box("sh", "-c", f"cat > /etc/convertq/convertq.env <<'END'\n{settings}END")
    _install_as_opt(box)
    port = free_port()
    box("mkdir", "-p", "/etc/systemd/system/convertq-web.socket.d")
    chosen = f"[Socket]\nListenStream=\nListenStream=127.0.0.1:{port}\n"
    box("sh", "-c", f"cat > /etc/systemd/system/convertq-web.socket.d/port.conf <<'END'\n{chosen}END")
    box("systemctl", "daemon-reload")
    box("systemctl", "start", "convertq-web.socket")
    assert _property(box, "ActiveState", "convertq-web.service") == "inactive"
    url = f"http://127.0.0.1:{port}"
    try:
        assert requests.get(f"{url}/ready", timeout=30).status_code == 200
        file = {"file": ("a.pdf", b"%PDF-1.7")}
        stored = requests.post(f"{url}/api/jobs", files=file, headers={"Sec-Fetch-Site": "same-origin"}, timeout=30)
        assert stored.status_code == 201
        assert _property(box, "ActiveState", "convertq-web.service") == "active"
        box("systemctl", "stop", "convertq-web.service")
        assert _property(box, "Result", "convertq-web.service") == "success"
        assert requests.get(f"{url}/health", timeout=30).status_code == 200  # it is started again
    finally:
        print(box("journalctl", "-u", "convertq-web.service", "--no-pager").stdout)
        box("systemctl", "stop", "convertq-web.socket", "convertq-web.service")


def test_wrong_configuration_is_not_restarted_for_ever(box: Run) -> None:
    box("sh", "-c", "echo 'DATABASE_URL=mysql://nowhere' > /etc/convertq/convertq.env")
    _install_as_opt(box)
    box("systemctl", "start", "convertq-worker.service", check=False)
    eventually(lambda: _property(box, "ActiveState") == "failed", what="the unit to fail")
    assert _property(box, "ExecMainStatus") == "78"
    assert _property(box, "NRestarts") == "0"
    box("systemctl", "reset-failed", "convertq-worker.service")


def _install_as_opt(box: Run) -> None:
    """The checkout's packages under the path that the unit names, run by a Python that the unit's user can read."""
    packages = ROOT / ".venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    code = f"import site; site.addsitedir('{packages}'); from convertq.cli.main import main; main()"
    script = f'#!/bin/sh\nexec {SYSTEM_PYTHON} -c "{code}" "$@"\n'
    box("sh", "-c", f"mkdir -p /opt/convertq/bin; cat > /opt/convertq/bin/convertq <<'END'\n{script}END")
    box("chmod", "755", "/opt/convertq/bin/convertq")
