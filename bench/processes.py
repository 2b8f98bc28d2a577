"""Processes under measurement: started so that none outlives the benchmark, and their cost, read from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
TICKS = os.sysconf("SC_CLK_TCK")
_libc = ctypes.CDLL(None)


@contextlib.contextmanager
def running(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    *,
    reads: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Its output goes to the log; or, with `reads`, its stdout to the process that started it."""
    with open(log or os.devnull, "ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if reads else output,
            stderr=None if reads else output, start_new_session=True,
            preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
        )  # fmt: skip
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for ask in (process.terminate, process.terminate, process.kill):
        ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
            break
    if process.stdout:
        process.stdout.close()


def family(*roots: int) -> list[int]:
    """These processes and all that descend from them."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found = list(roots)
    for pid in found:  # grows while it is walked
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _parent(entry: Path) -> int:
    with contextlib.suppress(OSError):
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def cpu_seconds(*roots: int) -> float:
    """User and system time of these and all their descendants, with those that have ended and were waited for."""
    ticks = 0
    for pid in family(*roots):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / TICKS


def pss_megabytes(pid: int) -> float:
    """The process's own memory plus its share of what it has in common with others."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no Pss of process {pid}")
