"""`convertq up` and `convertq convert` as a newcomer uses them: from outside, on a machine without a service."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from convertq.embedded.postgres import free_port

from tests.gateway_behaviours import silent
from tests.lifecycle.conftest import wait_for_call
from tests.processes import Process, parent_of, pids, run
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually
from tests.web_client import Visitor

SAMPLES = Path(__file__).parents[2] / "gateway" / "samples"
Settings = dict[str, str]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    given = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return given | {"XDG_DATA_HOME": str(tmp_path), "WEB_PORT": str(free_port()), "LOG_FORMAT": "json"}


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        if process.popen.poll() is None:  # otherwise its number may be another's by now
            kill_tree(process.pid)
        process.end()


def descendants(pid: int) -> list[int]:
    """With the process itself, parents first."""
    parents = {other: parent_of(other) for other in pids()}
    found = [pid]
    for one in found:
        found += [other for other, parent in parents.items() if parent == one]
    return found


def kill_tree(pid: int) -> None:
    """SIGKILL for every process of it, PostgreSQL included; none can react to the death of another.

    Returns when they have ended: a PostgreSQL that is still there keeps the next one from its data.
    """
    tree = descendants(pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in tree:
            try:
                os.kill(one, number)
            except ProcessLookupError:
                continue
    eventually(lambda: all(parent_of(one) is None for one in tree), what="the end of every process")


def start_up(
    settings: Settings, processes: list[Process], program: Sequence[str] | None = None
) -> tuple[Process, Visitor]:
    processes.append(Process("up", environment=settings, program=program))
    address = eventually(lambda: address_of(processes[-1]), what="convertq up shows its address")
    assert address
    return processes[-1], Visitor(address)


def address_of(process: Process) -> str | None:
    if process.popen.poll() is not None:
        raise AssertionError(f"it has ended:\n{process.tail()}")
    return next((line.split()[0] for line in list(process.lines) if "drop PDF files" in line), None)


def test_after_a_crash_of_everything_the_next_start_completes_the_job(
    settings: Settings, processes: list[Process], tmp_path: Path
) -> None:
    invoice = (SAMPLES / "hotel.pdf").read_bytes()
    with StandInGateway() as gateway:
        gateway.default = silent()
        first, visitor = start_up({**settings, "GATEWAY_URL": gateway.url}, processes)
        job = UUID(visitor.submit(invoice, "hotel.pdf").json()["id"])
        wait_for_call(gateway, job)
        refused_while_it_runs(settings, first, tmp_path)
        kill_tree(first.pid)
        first.wait()
    second, again = start_up(settings, processes)
    again.cookies = visitor.cookies
    eventually(lambda: again.get(f"/api/jobs/{job}").json()["status"] == "complete", what="the job to be complete")
    assert again.get(f"/api/jobs/{job}/download").content == (SAMPLES / "hotel.xml").read_bytes()
    assert again.submitted(invoice, mapping="text_v1") != job  # every mapping of the reference gateway is allowed
    token = (tmp_path / "convertq" / "admin-token").read_text().strip()
    stats = again.get("/api/admin/stats", headers={"Authorization": f"Bearer {token}"}).json()
    assert stats["totals"]["created"] == 2
    second.send(signal.SIGINT)
    assert second.wait() == 0, second.tail()
    refuses_another_version(settings, tmp_path / "convertq")


def refused_while_it_runs(settings: Settings, running: Process, tmp_path: Path) -> None:
    same = run("up", environment=settings)
    assert same.returncode == 1
    assert f"already running on {tmp_path}/convertq (process {running.pid})" in same.stderr
    other = run("up", "--data", str(tmp_path / "other"), environment=settings)
    assert other.returncode == 1
    assert f"WEB_PORT={int(settings['WEB_PORT']) + 1} convertq up" in other.stderr


def refuses_another_version(settings: Settings, data: Path) -> None:
    version = data / "postgres" / "data" / "PG_VERSION"
    version.write_text("13\n")
    ended = run("up", environment=settings)
    assert ended.returncode == 1
    assert "is of PostgreSQL 13" in ended.stderr
    assert "CONVERTQ_PG_PREFIX" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_retention_happens_while_it_runs_and_a_failed_one_stops_nothing(
    settings: Settings, processes: list[Process], tmp_path: Path
) -> None:
    program = (sys.executable, "-m", "tests.frequent_cleanup_up")
    settings |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    process, _ = start_up(settings, processes, program)
    data = tmp_path / "convertq"
    orphan = leave_orphan(data / "uploads")
    eventually(lambda: not orphan.exists(), what="the cleanup")
    assert failed_cleanups(process) == []
    (data / "results").rename(data / "away")
    eventually(lambda: failed_cleanups(process), what="a failed cleanup")
    (data / "away").rename(data / "results")
    assert "nothing was removed" in failed_cleanups(process)[0]
    orphan = leave_orphan(data / "uploads")
    eventually(lambda: not orphan.exists(), what="a cleanup after the failed one")
    assert process.stop() == 0, process.tail()


def leave_orphan(uploads: Path) -> Path:
    """As of a submission two days ago that was interrupted before it had a row."""
    path = uploads / f"{uuid4()}.pdf"
    path.write_bytes(b"%PDF-1.7\n")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(path, (two_days_ago, two_days_ago))
    return path


def failed_cleanups(process: Process) -> list[str]:
    return [line for line in list(process.lines) if line.startswith("cleanup failed: ")]


def test_convert_writes_an_xml_file_for_each_pdf_and_replaces_older_ones(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    shutil.copy(SAMPLES / "oficina.pdf", tmp_path / "twice" / "hotel.pdf")
    (tmp_path / "text.pdf").write_text("no PDF")
    output = tmp_path / "out"
    output.mkdir()
    (output / "hotel.xml").write_text("old")
    files = [SAMPLES / "hotel.pdf", tmp_path / "twice" / "hotel.pdf", tmp_path / "text.pdf", tmp_path / "missing.pdf"]
    ignored = {"DATABASE_URL": "postgresql://nowhere.invalid/real"}
    ended = run("convert", *map(str, files), "-o", str(output), "--json", environment=settings | ignored)
    assert ended.returncode == 1, ended.stderr
    written = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(one["file"], one["status"], one["error_code"]) for one in written] == [
        (str(files[0]), "complete", None),
        (str(files[1]), "complete", None),
        (str(files[2]), "failed", "NOT_PDF"),
        (str(files[3]), "failed", "IO_ERROR"),
    ]
    assert sorted(path.name for path in output.iterdir()) == ["hotel (2).xml", "hotel.xml"]
    assert (output / "hotel.xml").read_bytes() == (SAMPLES / "hotel.xml").read_bytes()
    assert Path(written[1]["output"]).read_bytes() == (SAMPLES / "oficina.xml").read_bytes()
