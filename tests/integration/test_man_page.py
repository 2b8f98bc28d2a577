"""man/convertq.1: it names every command, setting and exit code, and a reader can format it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from convertq.cli.exit_code import ExitCode
from convertq.cli.main import COMMANDS
from convertq.queue.settings import SETTINGS

PAGE = Path(__file__).parents[2] / "man" / "convertq.1"
TEXT = PAGE.read_text()
PLAIN = re.sub(r"\\f[A-Z]|[\"\\]", "", TEXT)


def section(name: str) -> str:
    found = re.search(rf"^\.SH {name}$(.*?)(?=^\.SH |\Z)", PLAIN, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_named(command: str) -> None:
    assert re.search(rf"^\.BR? {command}\b", section("COMMANDS"), re.MULTILINE)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.variable)
def test_every_variable_is_named_with_its_default(setting: object) -> None:
    variable, default = setting.variable, setting.default  # type: ignore[attr-defined]
    after = section("ENVIRONMENT").partition(f".B {variable}\n")[2].partition(".TP")[0]
    assert after, f"{variable} is not in the page"
    assert default is None or default in after


@pytest.mark.parametrize("code", list(ExitCode), ids=lambda code: code.name)
def test_every_exit_code_is_named(code: ExitCode) -> None:
    assert f".B {int(code)}\n" in section("EXIT STATUS")


def test_it_can_be_formatted_without_a_warning() -> None:
    if not (groff := shutil.which("groff")):
        pytest.skip("there is no groff here")
    done = subprocess.run([groff, "-man", "-ww", "-Tascii", str(PAGE)], capture_output=True, text=True)
    if "can't find" in done.stderr or "cannot" in done.stderr:
        pytest.skip("this groff has no man macros")
    assert done.stderr == ""
    assert "SYNOPSIS" in re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)


def test_it_is_installed_where_man_looks() -> None:
    assert "share/man/man1 = man/convertq.1" in (PAGE.parents[1] / "setup.cfg").read_text()
