"""doctor's checks of this host, each seen both ways: directories, disk, descriptors, gateway."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from convertq.queue.doctor import host
from convertq.queue.doctor.finding import CheckContext, Finding
from convertq.queue.store import directory_checks

from tests.conftest import Dirs, Environment
from tests.findings import BAD, OK, WARN, MakeContext, find, state_of
from tests.gateway_behaviours import silent, status
from tests.processes import CONSOLE_SCRIPT
from tests.stand_in_gateway import StandInGateway

NOBODY = 65534


def test_heartbeat(make_context: MakeContext) -> None:
    assert state_of(host.check_heartbeat, make_context()) is OK
    assert state_of(host.check_heartbeat, make_context(WORKER_HEARTBEAT_TIMEOUT_SEC=10)) is WARN


def test_directories_are_made_by_fix(make_context: MakeContext, tmp_path: Path) -> None:
    assert [finding.state for finding in find(host.check_directories, make_context())] == [OK, OK]
    context = make_context(RESULTS_DIR=tmp_path / "new" / "results")
    assert [finding.state for finding in find(host.check_directories, context)] == [OK, BAD]
    fixed = find(host.check_directories, context, fix=True)
    assert [(finding.state, finding.fixed) for finding in fixed] == [(OK, "made the directory")] * 2
    assert (tmp_path / "new" / "results").is_dir()


def test_a_file_in_the_place_of_a_directory_is_bad_and_fix_says_that_it_stays_so(
    make_context: MakeContext, dirs: Dirs
) -> None:
    (dirs.uploads / "file").write_text("")
    context = make_context(UPLOADS_DIR=dirs.uploads / "file", RESULTS_DIR=dirs.uploads / "file" / "below")
    found = find(host.check_directories, context, fix=True)
    assert [finding.state for finding in found] == [BAD, BAD]
    assert found[1].fixed.startswith("could not: ")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that every user can enter; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_anybody(context: CheckContext) -> list[Finding]:
    """What check_directories finds for a user without root's rights; a process of its own, for there is no way back."""
    drop = os.setuid if os.geteuid() == 0 else None
    with multiprocessing.get_context("fork").Pool(1, drop, (NOBODY,) if drop else ()) as process:
        return process.apply(host.check_directories, (CheckContext(context.config, context.store),))


def test_a_directory_that_its_user_may_not_write_is_bad(make_context: MakeContext, open_folder: Path) -> None:
    context = make_context(UPLOADS_DIR=open_folder, RESULTS_DIR=open_folder)
    open_folder.chmod(0o777)
    assert [finding.state for finding in as_anybody(context)] == [OK, OK]
    open_folder.chmod(0o555)
    [uploads, results] = as_anybody(context)
    assert (uploads.state, uploads.what) == (BAD, f"UPLOADS_DIR: {open_folder} is not writable here")
    assert (results.state, results.remedy) == (
        BAD,
        f"chown {NOBODY if os.geteuid() == 0 else os.geteuid()} {open_folder}",
    )


def test_a_directory_behind_a_closed_one_is_bad_and_says_why(make_context: MakeContext, open_folder: Path) -> None:
    (open_folder / "closed" / "results").mkdir(parents=True)
    (open_folder / "closed").chmod(0o000)
    context = make_context(UPLOADS_DIR=open_folder / "new", RESULTS_DIR=open_folder / "closed" / "results")
    [uploads, results] = as_anybody(context)
    (open_folder / "closed").chmod(0o700)
    assert (uploads.state, "is not there" in uploads.what) == (BAD, True)
    assert (results.state, results.what) == (
        BAD,
        f"RESULTS_DIR: {context.config.results_dir} cannot be seen: permission denied",
    )


def test_disk(make_context: MakeContext, dirs: Dirs) -> None:
    assert state_of(host.check_disk, make_context(RESULTS_MIN_FREE_MB=1)) is OK
    assert state_of(host.check_disk, make_context(RESULTS_MIN_FREE_MB=2**31 - 1)) is BAD
    assert state_of(host.check_disk, make_context(RESULTS_DIR="/nowhere")) is BAD


def test_a_disk_with_less_than_twice_what_is_wanted_is_a_warning(make_context: MakeContext, dirs: Dirs) -> None:
    space = os.statvfs(dirs.results)
    free = space.f_bavail * space.f_frsize // directory_checks.BYTES_PER_MB
    [finding] = find(host.check_disk, make_context(RESULTS_MIN_FREE_MB=free * 2 // 3))
    assert (finding.state, f"{free * 2 // 3} MB wanted" in finding.what) == (WARN, True)


@pytest.mark.parametrize(
    ("inodes", "state", "words"),
    [(100_000, "ok", "MB free"), (100, "warn", "99 more files"), (1, "bad", "has no inode left")],
)
def test_inodes(environment: Environment, inodes: int, state: str, words: str) -> None:
    """A file system of its own, mounted where only the command sees it."""
    mount = f'mount -t tmpfs -o nr_inodes={inodes},size=10m tmpfs "$RESULTS_DIR" && exec "$@"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "-", CONSOLE_SCRIPT, "doctor", "--json"],
        env=environment(DATABASE_URL="postgresql://127.0.0.1:9/x"), capture_output=True, text=True,
    )  # fmt: skip
    if done.stderr:
        pytest.skip(f"no file system of our own: {done.stderr.strip()}")
    [found] = [line for line in map(json.loads, done.stdout.splitlines()) if line["check"] == "disk"]
    assert (found["state"], words in found["what"]) == (state, True), found


def test_descriptors(make_context: MakeContext) -> None:
    context = make_context(WORKER_CONCURRENCY=100)
    assert state_of(host.check_descriptors, context) is OK
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
    try:
        assert state_of(host.check_descriptors, context) is BAD
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_gateway(make_context: MakeContext, gateway: StandInGateway) -> None:
    assert state_of(host.check_gateway, make_context()) is OK
    assert state_of(host.check_gateway, make_context(GATEWAY_URL=None)) is WARN
    gateway.health = status(404)
    [finding] = find(host.check_gateway, make_context())
    assert (finding.state, finding.what) == (OK, "it answers, but has no /health (404): counts as healthy")
    gateway.health = status(503)
    assert state_of(host.check_gateway, make_context()) is BAD
    gateway.stop()
    assert state_of(host.check_gateway, make_context()) is BAD


def test_a_gateway_that_says_nothing_is_bad(
    make_context: MakeContext, gateway: StandInGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "GATEWAY_TIMEOUT_SECONDS", 0.2)
    gateway.health = silent()
    [finding] = find(host.check_gateway, make_context())
    assert (finding.state, finding.what.endswith("nothing within 0.2 s")) == (BAD, True)


def test_a_gateway_without_tls_where_it_is_wanted_is_bad(make_context: MakeContext, gateway: StandInGateway) -> None:
    [finding] = find(host.check_gateway, make_context(GATEWAY_URL=gateway.url.replace("http:", "https:")))
    assert (finding.state, finding.what.endswith("TLS or its certificate was refused")) == (BAD, True)


def test_something_else_in_the_gateways_place_is_bad(make_context: MakeContext) -> None:
    with listening(b"220 mail.example ESMTP\r\n") as port:
        [finding] = find(host.check_gateway, make_context(GATEWAY_URL=f"http://127.0.0.1:{port}"))
    assert (finding.state, finding.what.endswith("not an HTTP answer")) == (BAD, True)


@contextmanager
def listening(says: bytes) -> Iterator[int]:
    """A port where every client is told this, and no more."""

    def answer() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1000)
            client.sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]
