"""Which room may import which: the arrows of CONTRIBUTING.md go one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: each room, and those that it may import
ARROWS = {
    "sql": set(),
    "queue": {"sql"},
    "worker": {"queue"},
    "gateway": set(),
    "embedded": {"queue"},
    "web": {"queue"},
    "cli": {"embedded", "gateway", "queue", "web", "worker"},
}
#: The CLI starts these processes, and calls nothing else in their rooms.
STARTED_BY_CLI = {
    "worker": {"convertq.worker.supervisor.supervisor"},
    "web": {"convertq.web.gevent_setup", "convertq.web.server"},
}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_from_where_its_arrows_lead(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) convertq(?:\.(\w+)| import (\w+))", path.read_text(), re.MULTILINE)
        others = {first or second for first, second in imported} - {room}
        assert others <= ARROWS[room], f"{path.relative_to(ROOT)} imports {others - ARROWS[room]}"


@pytest.mark.parametrize("room", STARTED_BY_CLI)
def test_the_cli_only_starts_the_other_processes(room: str) -> None:
    for path in (ROOT / "cli").rglob("*.py"):
        imported = set(re.findall(rf"^\s*(?:from|import) (convertq\.{room}[.\w]*)", path.read_text(), re.MULTILINE))
        assert imported <= STARTED_BY_CLI[room], f"{path.relative_to(ROOT)} imports {imported - STARTED_BY_CLI[room]}"


def statements_run_in(room: str) -> Iterator[str]:
    """Calls such as `database.run("get_job")`, also of a statement whose name is computed."""
    names = {path.stem for path in (ROOT / "sql" / "queries").glob("*.sql")}
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("run", "one"):
                named = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value in names
                if named or ast.unparse(node.func.value).endswith("database"):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("room", ["cli", "web"])
def test_the_cli_and_the_web_call_verbs_of_the_domain_and_run_no_statement(room: str) -> None:
    assert list(statements_run_in(room)) == []


def test_the_domain_does_not_hide_the_standard_library() -> None:
    """Python puts the folder that it is started in first: with an __init__.py, queue/ would be imported as `queue`."""
    shown = [sys.executable, "-c", "import queue; print(queue.SimpleQueue.__name__)"]
    assert subprocess.run(shown, cwd=ROOT, capture_output=True, text=True).stdout == "SimpleQueue\n"
