"""The command line itself: help, mistakes, exit codes."""

from __future__ import annotations

import subprocess
import sys

import click
import psycopg
import pytest
from convertq.cli.exit_code import ExitCode, explain
from convertq.cli.main import COMMANDS, convertq, run
from convertq.queue.config import ConfigError
from convertq.queue.database.errors import SchemaError


def commands() -> list[str]:
    return convertq.list_commands(click.Context(convertq))


def test_the_help_lists_every_command_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name}" in listed for name in commands())


def test_the_help_imports_neither_the_driver_nor_a_command() -> None:
    code = "import sys; from convertq.cli.main import run; run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "'psycopg'" not in loaded
    assert "convertq.queue.config" not in loaded
    assert "convertq.cli.submit" not in loaded


def test_worker_run_imports_no_terminal_library() -> None:
    code = "import sys, convertq.cli.main, convertq.worker.supervisor.supervisor; print('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_every_command_has_a_line_of_help_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    groups = ("worker", "gateway", "web", "storage")
    for name in (name for name in commands() if name not in groups):
        assert run([name, "--help"]) == 0
        assert COMMANDS[name][1].endswith(".")
        assert f"convertq {name}" in capsys.readouterr().out.partition("Example")[2], name


def test_a_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sumbit", "x.pdf"]) == ExitCode.USAGE
    assert "did you mean submit?" in capsys.readouterr().err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == ExitCode.USAGE
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (ConfigError(["A is wrong", "B is wrong"]), 78, ["convertq: A is wrong", "convertq: B is wrong"]),
        (SchemaError("run `convertq migrate`"), 1, ["convertq: run `convertq migrate`"]),
        (FileNotFoundError(2, "No such file", "a\nb"), 1, ["convertq: a\\nb: no such file"]),
        (psycopg.errors.QueryCanceled("too slow"), 1, ["convertq: the database refused: too slow"]),
        (KeyError("x"), 1, ["convertq: unexpected error: KeyError: 'x' (run with --debug)"]),
        (BrokenPipeError(), 1, []),
        (KeyboardInterrupt(), 130, []),
        (click.Abort(), 130, []),
    ],
)
def test_an_error_is_its_lines_and_its_exit_code(error: BaseException, code: int, lines: list[str]) -> None:
    assert explain(error) == (code, lines)


def test_an_unreachable_database_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:s3cret@db.example:5433/jobs")
    code, lines = explain(psycopg.OperationalError("connection failed:\n  refused"))
    assert code == ExitCode.UNREACHABLE
    assert lines == ["convertq: database unreachable at db.example:5433/jobs: connection failed: refused"]
    code, lines = explain(psycopg.errors.TooManyConnections("sorry"))
    assert code == ExitCode.UNREACHABLE
    assert lines == ["convertq: the database at db.example:5433/jobs has no connection left: sorry"]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["list", "--status", "faild"], "failed"),
        (["list", "--code", "gw5xx"], "GW_5XX"),
        (["retry", "--code", "TIMEOUT"], "GW_TIMEOUT"),
        (["breaker", "cloze"], "close"),
    ],
)
def test_a_slip_in_a_value_is_answered_with_what_was_meant(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"did you mean {meant}?" in said
    assert len(said.splitlines()) == 1


def test_no_help_is_wider_than_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        run([command, "--help"])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80 and "  convertq " not in line] == []
