"""The embedded server: it starts anywhere, keeps its data, and never outlives us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from convertq.embedded.postgres import EmbeddedPostgres, StopMode
from convertq.embedded.scratch import Scratch, sweep

from tests.processes import command_of
from tests.waiting import eventually

OWNER = """
import os, signal
from convertq.embedded.postgres import EmbeddedPostgres
server = EmbeddedPostgres().start()
print(server.pid, server.host, flush=True)
signal.pause()
"""


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(port=0) as started:
        yield started


def write_a_row(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url()) as conn:
        conn.execute("CREATE TABLE kept (word text)")
        conn.execute("INSERT INTO kept VALUES ('still here')")


def rows(server: EmbeddedPostgres) -> list[tuple[str]]:
    with psycopg.connect(server.url()) as conn:
        return conn.execute("SELECT word FROM kept").fetchall()


def test_without_a_port_it_listens_on_its_socket_alone() -> None:
    with EmbeddedPostgres() as server, psycopg.connect(server.url()) as conn:
        assert conn.execute("SHOW listen_addresses").fetchone() == ("",)


def test_settings_reach_the_server() -> None:
    settings = {"max_connections": "17"}
    with EmbeddedPostgres(settings=settings) as server, psycopg.connect(server.url()) as conn:
        assert conn.execute("SHOW max_connections").fetchone() == ("17",)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_what_was_committed_survives_a_stop_and_a_start(server: EmbeddedPostgres, mode: StopMode) -> None:
    write_a_row(server)
    server.stop(mode)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url())
    server.start()
    assert rows(server) == [("still here",)]


def test_an_immediate_stop_is_a_crash_that_the_next_start_recovers_from(server: EmbeddedPostgres) -> None:
    server.restart("immediate")
    assert "was not properly shut down" in server.log.read_text()


def test_closing_it_leaves_neither_files_nor_a_process() -> None:
    with EmbeddedPostgres() as server:
        pid = server.pid
        assert pid is not None
        assert Path(server.host).exists()
    assert not Path(server.host).exists()
    assert command_of(pid) == "(gone)"


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_parent(death: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        pid, folder = owner.stdout.readline().split()
        owner.send_signal(death)
    eventually(lambda: "postgres" not in command_of(int(pid)), what="the server to end")
    sweep_as_if_a_minute_later(Path(folder))


def sweep_as_if_a_minute_later(folder: Path) -> None:
    """So that the test leaves nothing, and because what a killed owner left must be swept."""
    if folder.exists():
        os.utime(folder, (0, 0))
        sweep(folder.parent, {folder.stat().st_uid})
    assert not folder.exists()


def test_a_folder_in_use_is_not_swept(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, None)
    os.utime(scratch.path, (0, 0))
    sweep(tmp_path, {os.geteuid()})
    assert scratch.path.exists()
    scratch.close()


def test_a_forked_child_that_exits_leaves_the_server_running(server: EmbeddedPostgres) -> None:
    write_a_row(server)
    child = os.fork()
    if not child:
        server.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert rows(server) == [("still here",)]
