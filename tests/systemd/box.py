"""A booted systemd in tests, and what is asked of it: commands, files, properties of units, the journal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.waiting import WAIT_SECONDS, eventually

ROOT = Path(__file__).parents[2]
#: what an installation inside needs to know of this machine's way to packages
PASSED_ON = ("PIP_", "UV_", "SSL_CERT", "REQUESTS_CA")


def make_command(*arguments: str, folder: str = str(ROOT)) -> list[str]:
    """For a checkout, by a Python that everybody may read."""
    passed = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(PASSED_ON)]
    return ["env", *passed, "make", "-sC", folder, "PYTHON=/usr/bin/python3", *arguments]


class Box:
    """Its network is this machine's own, so that a test can ask the database inside."""

    def __init__(self, tool: str) -> None:
        self._tool, self._state = tool, f"/run/convertq-box-{os.getpid()}"
        self._environment = {
            **os.environ, "SYSTEMD_BOX_NAME": f"convertq-{os.getpid()}", "SYSTEMD_BOX_NET": "host",
            "SYSTEMD_BOX_DIR": self._state, "SYSTEMD_BOX_BIND": str(ROOT),
        }  # fmt: skip

    def __enter__(self) -> Self:
        subprocess.run([self._tool, "up"], env=self._environment, check=True)
        return self

    def __exit__(self, *exc: object) -> None:
        subprocess.run([self._tool, "down"], env=self._environment, check=False)
        shutil.rmtree(self._state, ignore_errors=True)

    def run(self, *command: str, check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self._tool, "run", *command], env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}"
        return done

    def sh(self, script: str, *arguments: str, check: bool = True) -> str:
        return self.run("sh", "-ec", script, "sh", *arguments, check=check).stdout.strip()

    def write(self, path: str, text: str) -> None:
        self.sh('mkdir -p "${1%/*}"; printf %s "$2" > "$1"', path, text)

    def begin(self, *command: str) -> subprocess.Popen[str]:
        """In the background."""
        return subprocess.Popen(
            [self._tool, "run", *command], env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def make(self, *arguments: str, folder: str = str(ROOT)) -> str:
        return self.run(*make_command(*arguments, folder=folder)).stdout

    # -- units --

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        return self.run("systemctl", *arguments, check=check).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        return self.systemctl("show", "--value", "-p", name, unit)

    def wait_until(self, unit: str, name: str, value: str, timeout: float = WAIT_SECONDS) -> None:
        """Until that property is this; an AssertionError with the unit's journal when it does not come."""
        try:
            eventually(lambda: self.show(unit, name) == value, timeout, f"{unit}: {name}={value}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.journal(unit)}") from None

    def change(self, unit: str, text: str) -> None:
        """A drop-in, gone with `revert`."""
        self.write(f"/run/systemd/system/{unit}.d/test.conf", text)
        self.systemctl("daemon-reload")

    def revert(self, unit: str) -> None:
        self.sh('rm -rf "/run/systemd/system/$1.d"; systemctl daemon-reload', unit)

    def journal(self, unit: str, *options: str) -> str:
        self.run("journalctl", "--sync")
        return self.run("journalctl", "--no-pager", "-u", unit, *options).stdout

    def entries(self, unit: str, *options: str) -> list[dict[str, Any]]:
        """The journal's entries with all their fields."""
        found = self.run("journalctl", "--no-pager", "-q", "-o", "json", f"_SYSTEMD_UNIT={unit}", *options).stdout
        return [json.loads(line) for line in found.splitlines()]

    def now(self) -> str:
        """For `journalctl --since`."""
        return f"@{self.sh('date +%s.%6N')}"
