"""SIGHUP: the workers are replaced one by one, no job notices, LOG_FILE is reopened, and systemd is notified."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.conftest import Environment, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import held
from tests.lifecycle.conftest import wait_for_call
from tests.notify_socket import NotifySocket
from tests.processes import CONSOLE_SCRIPT, Process
from tests.stand_in_gateway import StandInGateway
from tests.waiting import WAIT_SECONDS, eventually


@pytest.fixture
def told(tmp_path: Path) -> Iterator[NotifySocket]:
    with NotifySocket(tmp_path / "notify") as listening:
        yield listening


def reload(process: Process, times: int = 1) -> None:
    """And waits until it is through."""
    process.send(signal.SIGHUP)
    process.wait_for_event("ready", count=times + 1)


def pids_by_slot(process: Process) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in process.events("worker_start"):
        found.setdefault(event["worker"], []).append(event["pid"])
    return found


def test_every_worker_is_replaced_and_never_two_at_a_time(supervisor: Supervisor) -> None:
    process = supervisor(WORKER_CONCURRENCY=3)
    before = set(process.children())
    fewest = 3

    def watch() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(process.children()))
        return len(process.events("ready")) == 2

    process.send(signal.SIGHUP)
    eventually(watch, what="the end of the reload")
    assert fewest >= 2
    assert len(process.children()) == 3
    assert not before & set(process.children())
    assert [len(pids) for pids in pids_by_slot(process).values()] == [2, 2, 2]
    assert process.events("worker_died") == []
    assert process.stop() == 0


def test_a_busy_worker_finishes_its_job_without_the_grace_and_idle_ones_go_first(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    answered = threading.Event()
    process = supervisor(WORKER_CONCURRENCY=2, WORKER_SHUTDOWN_GRACE_SEC=0)
    job_id = documents.upload()
    gateway.script_for(job_id, held(answered))
    documents.insert(job_id)
    wait_for_call(gateway, job_id)
    busy = documents.row(job_id)["leased_by"]
    idle = next(worker for worker in pids_by_slot(process) if worker != busy)
    process.send(signal.SIGHUP)
    eventually(lambda: len(pids_by_slot(process)[idle]) == 2, what="the idle one replaced")
    assert documents.row(job_id)["leased_by"] == busy
    assert len(pids_by_slot(process)[busy]) == 1
    answered.set()
    process.wait_for_event("ready", count=2)
    assert len(pids_by_slot(process)[busy]) == 2
    assert (documents.row(job_id)["status"], documents.row(job_id)["attempt_count"]) == ("complete", 1)
    assert process.stop() == 0


def test_nobody_else_goes_while_one_still_works(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    process = supervisor(WORKER_CONCURRENCY=2)
    answers = {documents.upload(): threading.Event() for _ in range(2)}
    for job_id, answered in answers.items():
        gateway.script_for(job_id, held(answered))
        documents.insert(job_id)
    for job_id in answers:
        wait_for_call(gateway, job_id)
    process.send(signal.SIGHUP)
    process.wait_for_event("reload")
    first, second = sorted(answers, key=lambda job_id: str(documents.row(job_id)["leased_by"]))
    answers[second].set()
    documents.wait_for(documents.put(), "complete")  # by the second, which is free and was not told to go
    assert [len(pids) for pids in pids_by_slot(process).values()] == [1, 1]
    answers[first].set()
    process.wait_for_event("ready", count=2)
    assert [len(pids) for pids in pids_by_slot(process).values()] == [2, 2]
    assert process.stop() == 0


def test_no_job_is_lost_or_done_twice_while_workers_are_replaced(supervisor: Supervisor, documents: Documents) -> None:
    process = supervisor(WORKER_CONCURRENCY=3)
    jobs = documents.put_many(150)
    for times in (1, 2, 3):
        reload(process, times)
    documents.wait_for_all(jobs, "complete")
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert process.events("worker_died") == []
    assert process.stop() == 0


def test_the_status_line_counts_workers_and_jobs_and_names_the_breaker(
    supervisor: Supervisor, documents: Documents, told: NotifySocket, gateway: StandInGateway
) -> None:
    answered = threading.Event()
    process = supervisor(NOTIFY_SOCKET=told.path, WORKER_HEARTBEAT_SEC=1)
    told.wait_for("STATUS=2 workers, 0 busy, 0 done, breaker closed")
    job_id = documents.upload()
    gateway.script_for(job_id, held(answered))
    documents.insert(job_id)
    told.wait_for("STATUS=2 workers, 1 busy, 0 done, breaker closed")
    answered.set()
    told.wait_for("STATUS=2 workers, 0 busy, 1 done, breaker closed")
    documents.conn.execute("UPDATE circuit_breaker SET state = 'open', opened_at = now(), by_hand = true")
    told.wait_for("STATUS=2 workers, 0 busy, 1 done, breaker open")
    reload(process)
    told.wait_for("STATUS=2 workers, 0 busy, 1 done, breaker open", count=2)  # jobs of those who went still count
    assert process.stop() == 0


def test_the_status_line_says_that_the_disk_holds_the_workers_until_it_does_no_more(
    supervisor: Supervisor, told: NotifySocket, tmp_path: Path
) -> None:
    results, well = tmp_path / "mounted", "STATUS=2 workers, 0 busy, 0 done, breaker closed"
    process = supervisor(NOTIFY_SOCKET=told.path, RESULTS_DIR=results)
    told.wait_for(well)
    results.rename(tmp_path / "gone")
    told.wait_for(f"{well}, 2 held by the disk (convertq doctor says why)")
    said = told.lines.count(well)
    results.mkdir()
    told.wait_for(well, count=said + 1)
    assert process.stop() == 0


def test_systemd_hears_of_readiness_reload_and_stop_in_their_order(supervisor: Supervisor, told: NotifySocket) -> None:
    process = supervisor(NOTIFY_SOCKET=told.path, WORKER_SHUTDOWN_GRACE_SEC=7)
    reload(process)
    told.wait_for("READY=1", count=2)
    assert process.stop() == 0
    said = [line for line in told.lines if line in ("READY=1", "RELOADING=1", "STOPPING=1")]
    assert said == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    assert [line for line in told.lines if line.startswith("MONOTONIC_USEC=")]
    [longer] = [int(line.partition("=")[2]) for line in told.lines if line.startswith("EXTEND_TIMEOUT_USEC=")]
    assert longer > 7_000_000  # whatever TimeoutStopSec is, the grace is granted


def test_a_reload_during_the_stop_is_ignored(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    answered = threading.Event()
    gateway.default = held(answered)
    process = supervisor(WORKER_CONCURRENCY=1)
    job_id = documents.put()
    wait_for_call(gateway, job_id)
    process.send(signal.SIGTERM)
    process.wait_for_event("shutdown", reason="SIGTERM")
    process.send(signal.SIGHUP)
    eventually(lambda: documents.servers()[0]["status"] == "draining", what="draining")
    answered.set()
    assert process.wait() == 0
    assert documents.row(job_id)["status"] == "complete"
    assert process.events("reload") == []
    assert [event["reason"] for event in process.events("shutdown")] == ["SIGTERM", "all workers have ended"]


def test_the_log_file_is_reopened(supervisor: Supervisor, tmp_path: Path) -> None:
    """Shown by a file that only looks as if it were still the one that is open: the name is new, the inode is not."""
    path, other = tmp_path / "convertq.log", tmp_path / "other"
    process = supervisor(LOG_FILE=path, WORKER_CONCURRENCY=1)

    def opened() -> set[str]:
        """The supervisor also opens and closes other files: one may be gone between its listing and its reading."""
        targets = set()
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                targets.add(str(link.readlink()))
        return {target for target in targets if str(path) in target}

    eventually(lambda: opened() == {str(path)}, what="the first line in the file")
    other.hardlink_to(path)
    path.unlink()
    path.hardlink_to(other)
    assert opened() == {f"{path} (deleted)"}
    reload(process)
    assert opened() == {str(path)}
    assert process.stop() == 0


@contextmanager
def in_a_terminal(environment: dict[str, str], *command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process once it is ready, and the terminal: closing it is what a lost connection does."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        env=environment,
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    assert process.stderr is not None
    with process.stderr as log:
        next(line for line in log if '"event": "ready"' in line)
        yield process, ours


def test_a_terminal_that_is_closed_ends_the_supervisor(environment: Environment) -> None:
    with in_a_terminal(environment(), CONSOLE_SCRIPT, "worker", "run") as (process, terminal):
        os.close(terminal)
        assert process.wait(WAIT_SECONDS) == 0


def test_nohup_keeps_the_supervisor_when_the_terminal_is_closed(environment: Environment) -> None:
    with in_a_terminal(environment(), "nohup", CONSOLE_SCRIPT, "worker", "run") as (process, terminal):
        os.close(terminal)
        assert process.stderr is not None
        next(line for line in process.stderr if '"event": "ready"' in line)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
