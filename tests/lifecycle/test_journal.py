"""Where stderr is the journal, every line carries its priority; elsewhere, and in LOG_FILE, it is the line alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.conftest import Environment
from tests.processes import CONSOLE_SCRIPT, parent_of, pids, run
from tests.waiting import WAIT_SECONDS, eventually

PRIORITIES = {"INFO": "<6>", "WARNING": "<4>", "ERROR": "<3>"}


@contextmanager
def worker(environment: dict[str, str], *, journal: bool) -> Iterator[tuple[subprocess.Popen[bytes], IO[str]]]:
    """`worker run` with a pipe for its stderr, which it is told to be the journal's, or to be another."""
    reader, writer = os.pipe()
    pipe = os.fstat(writer)
    stream = f"{pipe.st_dev}:{pipe.st_ino if journal else pipe.st_ino + 1}"
    process = subprocess.Popen(
        [CONSOLE_SCRIPT, "worker", "run"], env={**environment, "JOURNAL_STREAM": stream}, stderr=writer
    )
    os.close(writer)
    try:
        with open(reader) as log:
            yield process, log
    finally:
        process.kill()
        process.wait()


def read_until(log: IO[str], event: str) -> list[str]:
    lines = []
    for line in log:
        lines.append(line)
        if f'"event": "{event}"' in line:
            return lines
    raise AssertionError(f"no {event} in {lines}")


def test_each_line_has_the_priority_of_its_level_and_the_log_file_has_none(
    environment: Environment, tmp_path: Path
) -> None:
    copy = tmp_path / "convertq.log"
    with worker(environment(LOG_FILE=copy), journal=True) as (process, log):
        lines = read_until(log, "ready")
        victim = next(pid for pid in pids() if parent_of(pid) == process.pid)
        os.kill(victim, signal.SIGKILL)
        lines += read_until(log, "worker_died")
        process.terminate()
        lines += log.readlines()
    for line in lines:
        assert line[:3] == PRIORITIES[json.loads(line[3:])["level"]], line
    assert {line[:3] for line in lines} >= {"<6>", "<3>"}
    eventually(lambda: '"shutdown"' in copy.read_text(), what="the copy to be whole")
    assert all(line.startswith("{") for line in copy.read_text().splitlines())


def test_a_stderr_that_was_redirected_gets_no_priority(environment: Environment) -> None:
    with worker(environment(), journal=False) as (process, log):
        lines = read_until(log, "ready")
        process.terminate()
        lines += log.readlines()
    assert all(line.startswith("{") for line in lines)


def test_wrong_configuration_is_an_error_in_the_journal(environment: Environment) -> None:
    with worker(environment(WORKER_CONCURRENCY="many"), journal=True) as (process, log):
        assert log.read().startswith("<3>convertq: WORKER_CONCURRENCY = 'many': must be a whole number")
        assert process.wait(WAIT_SECONDS) == 78
    assert run("worker", "run", environment=environment(WORKER_CONCURRENCY="many")).stderr.startswith("convertq: ")
