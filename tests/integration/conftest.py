"""Owns what several integration tests share."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from convertq.worker.checks.finding import Limits, Look
from convertq.worker.config import read_config
from convertq.worker.db import Database, connect
from convertq.worker.doctor import ask
from convertq.worker.files import Files

from tests.conftest import Environment
from tests.findings import LookAt


@pytest.fixture
def look_at(environment: Environment) -> Iterator[LookAt]:
    """`look_at(limits=Limits(…), WORKER_CONCURRENCY=9)`: what a check is given, with a connection of convertq's own."""
    with ExitStack() as opened:

        def look_at(limits: Limits | None = None, **settings: object) -> Look:
            config = read_config(environment(**settings))
            database = Database(connect(config.database, "convertq:doctor"), config.database.schema)
            opened.callback(database.close)
            look = Look(config, Files(config.uploads_dir, config.results_dir), database, limits=limits or Limits())
            ask(look)
            return look

        yield look_at


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A terminal as an operator has it: `tmux("new-session", …)`, and what it printed."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    command = ["tmux", "-u", "-f", os.devnull, "-S", str(tmp_path / "tmux")]

    def tmux(*arguments: str) -> str:
        asked = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=20, check=False)
        return asked.stdout

    yield tmux
    tmux("kill-server")
