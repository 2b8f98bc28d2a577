"""LOG_FILE: whole lines from many processes, none lost in a rotation, none at a worker's cost."""

from __future__ import annotations

import fcntl
import json
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from convertq.queue.log.lines import Log, set_up_logging
from convertq.queue.log.shared_file import LOCK_TIMEOUT_SECONDS, SharedFileHandler, write_whole

from tests.jobs import config
from tests.waiting import WAIT_SECONDS, eventually

WRITERS, LINES, LENGTH = 8, 800, 2048
#: A line that waits too long for the lock is dropped, which is another test: here nobody is stopped while it has it.
WRITER = """
import logging, sys
from pathlib import Path
from convertq.queue.log import shared_file
from convertq.queue.log.shared_file import SharedFileHandler
shared_file.LOCK_TIMEOUT_SECONDS = 60.0
handler = SharedFileHandler(Path(sys.argv[1]), lambda record, reason: sys.exit(reason))
for number in range(int(sys.argv[3])):
    line = f"{sys.argv[2]} {number} ".ljust(int(sys.argv[4]) - 1, sys.argv[2])
    handler.handle(logging.makeLogRecord({"msg": line}))
"""

HOLDER = """
import fcntl, signal, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
signal.pause()
"""


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[SharedFileHandler]:
    made = SharedFileHandler(tmp_path / "log", lambda record, reason: said.append(reason))
    said: list[str] = []
    made.said = said  # type: ignore[attr-defined]
    yield made
    made.close()


def write(handler: SharedFileHandler, line: str) -> None:
    handler.handle(logging.makeLogRecord({"msg": line}))


def said_by(handler: SharedFileHandler) -> list[str]:
    return handler.said  # type: ignore[attr-defined, no-any-return]


def write_from_many(path: Path, rotate: Callable[[int], object]) -> None:
    """`rotate` is called again and again, as long as somebody writes."""
    arguments = [str(LINES), str(LENGTH)]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number), *arguments])
        for number in range(WRITERS)
    ]
    turn = 0
    while any(writer.poll() is None for writer in writers):
        if path.exists() and path.stat().st_size > 20 * LENGTH:
            rotate(turn := turn + 1)
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    assert turn > 5


def read_lines(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("log*")) for line in path.read_text().splitlines()]


def assert_whole(lines: list[str]) -> set[tuple[str, str]]:
    found = set()
    for line in lines:
        writer, number, _ = line.split(" ", 2)
        assert line == f"{writer} {number} ".ljust(LENGTH - 1, writer)
        found.add((writer, number))
    assert len(found) == len(lines), "a line was written twice"
    return found


EVERY_LINE = {(str(writer), str(number)) for writer in range(WRITERS) for number in range(LINES)}


def test_eight_processes_lose_and_tear_no_line_while_the_file_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_from_many(path, lambda turn: path.rename(tmp_path / f"log.{turn:03}"))
    assert assert_whole(read_lines(tmp_path)) == EVERY_LINE


def test_eight_processes_lose_and_tear_no_line_while_the_file_is_removed_after_its_copy(tmp_path: Path) -> None:
    """As with `compress` and no `delaycompress`: nobody may write to a file that was renamed just now."""
    path = tmp_path / "log"

    def compress(turn: int) -> None:
        renamed = tmp_path / "renamed"
        path.rename(renamed)
        with open(renamed, "rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)  # a line that was under way at the rename
        shutil.copy(renamed, tmp_path / f"log.{turn:03}")
        renamed.unlink()

    write_from_many(path, compress)
    assert assert_whole(read_lines(tmp_path)) == EVERY_LINE


def test_eight_processes_tear_no_line_while_the_file_is_copied_and_truncated(tmp_path: Path) -> None:
    """What is written between the copy and the cut is lost, in any program; with the lock held nothing is."""
    path = tmp_path / "log"

    def copy_and_truncate(turn: int) -> None:
        with open(path, "rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            (tmp_path / f"log.{turn:03}").write_bytes(file.read())
            file.truncate(0)

    write_from_many(path, copy_and_truncate)
    assert b"\0" not in path.read_bytes()
    assert assert_whole(read_lines(tmp_path)) == EVERY_LINE


def test_it_is_readable_by_its_group_alone(handler: SharedFileHandler, tmp_path: Path) -> None:
    write(handler, "x")
    assert (tmp_path / "log").stat().st_mode & 0o137 == 0


def test_a_missing_directory_costs_lines_and_one_word_until_it_is_there(tmp_path: Path) -> None:
    said: list[str] = []
    handler = SharedFileHandler(tmp_path / "later" / "log", lambda record, reason: said.append(reason))
    for line in ("one", "two", "three"):
        write(handler, line)
    assert said == ["LOG_FILE is not written: no such file or directory"]
    (tmp_path / "later").mkdir()
    write(handler, "four")
    write(handler, "five")
    assert said[1:] == ["LOG_FILE is written again; lines dropped: 3"]
    assert (tmp_path / "later" / "log").read_text() == "four\nfive\n"
    handler.close()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """A limit on the file's size stands for the disk's: the kernel writes what fits and then refuses."""
    child = multiprocessing.get_context("fork").Process(target=fill_up, args=(tmp_path / "log",))
    child.start()
    child.join(WAIT_SECONDS)
    assert child.exitcode == 0
    assert (tmp_path / "log").read_text() == "before\n"


def fill_up(path: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    write_whole(descriptor, b"before\n")
    try:
        write_whole(descriptor, b"does not fit\n")
    except OSError:
        os._exit(0)
    os._exit(1)


def test_a_stopped_process_that_holds_the_lock_delays_the_others_once(
    handler: SharedFileHandler, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text("")
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        began = time.monotonic()
        for _ in range(100):
            write(handler, "dropped")
        assert LOCK_TIMEOUT_SECONDS <= time.monotonic() - began < 20 * LOCK_TIMEOUT_SECONDS  # not a hundred times
        assert said_by(handler) == ["LOG_FILE is not written: another process holds its lock"]
        other.kill()
    write(handler, "written")
    assert path.read_text() == "written\n"
    assert said_by(handler)[1:] == ["LOG_FILE is written again; lines dropped: 100"]


def test_a_descriptor_that_has_gone_bad_is_replaced_by_reopening(handler: SharedFileHandler, tmp_path: Path) -> None:
    write(handler, "before")
    [descriptor] = [int(link.name) for link in Path("/proc/self/fd").iterdir() if is_at(link, tmp_path / "log")]
    with open(os.devnull) as unwritable:
        os.dup2(unwritable.fileno(), descriptor)
    write(handler, "dropped")
    handler.reopen()
    write(handler, "after")
    assert (tmp_path / "log").read_text() == "before\nafter\n"
    assert said_by(handler)[1:] == ["LOG_FILE is written again; lines dropped: 1"]


def is_at(link: Path, path: Path) -> bool:
    try:
        return link.readlink() == path
    except FileNotFoundError:  # the listing's own
        return False


def test_after_a_fork_parent_and_child_both_write(handler: SharedFileHandler, tmp_path: Path) -> None:
    write(handler, "before")
    child = os.fork()
    if child == 0:
        write(handler, "child")
        os._exit(0)
    os.waitpid(child, 0)
    write(handler, "parent")
    assert (tmp_path / "log").read_text() == "before\nchild\nparent\n"


def test_what_happens_to_the_file_is_said_on_stderr_as_a_line_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = config(LOG_FILE=tmp_path / "missing" / "log", LOG_FORMAT="json")
    set_up_logging(chosen)
    log = Log(chosen, "host:1:aaaa", "host:1:aaaa/2")
    log("ready")
    log("shutdown")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logging.getLogger("convertq").handlers.clear()
    assert [line["event"] for line in lines] == ["ready", "log_file", "shutdown"]
    assert lines[1]["worker"] == "host:1:aaaa/2"
    assert lines[1]["reason"] == "LOG_FILE is not written: no such file or directory"


def test_a_worker_logs_to_the_file_too(tmp_path: Path, supervisor: Callable[..., object]) -> None:
    supervisor(LOG_FILE=tmp_path / "log", WORKER_CONCURRENCY=3)

    def ready() -> bool:
        events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        return any(event["event"] == "ready" for event in events)

    eventually(ready)
