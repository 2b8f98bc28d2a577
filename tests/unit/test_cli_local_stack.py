"""`up` and `convert` before anything is started: names, places, and what is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from convertq.cli.convert import choose_names
from convertq.cli.exit_code import ExitCode
from convertq.cli.main import run
from convertq.embedded.binaries import EmbeddedError
from convertq.embedded.data_directory import DataDirectory, default_path
from convertq.embedded.kept_folder import KeptFolder


def test_equal_stems_are_numbered_and_no_name_is_given_twice() -> None:
    paths = [Path("a/x.pdf"), Path("b/x.PDF"), Path("x (2).pdf"), Path("c/x"), Path("y.pdf")]
    assert choose_names(paths) == ["x.xml", "x (2).xml", "x (2) (2).xml", "x (3).xml", "y.xml"]


def test_the_data_is_where_the_desktop_keeps_data() -> None:
    assert default_path({"XDG_DATA_HOME": "/data"}) == Path("/data/convertq")
    assert default_path({}) == default_path({"XDG_DATA_HOME": "relative"}) == Path.home() / ".local/share/convertq"


def test_the_token_is_private_and_stays(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    token = directory.settings()["ADMIN_TOKEN"]
    assert token == directory.settings()["ADMIN_TOKEN"]
    assert directory.token_file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(EmbeddedError, match="already running"):
        DataDirectory(tmp_path / "data")


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="choose a shorter one with --data"):
        KeptFolder(tmp_path / ("x" * 100))


@pytest.mark.parametrize("arguments", [["up"], ["convert", "x.pdf"]])
@pytest.mark.parametrize(("variable", "module"), [("GATEWAY_URL", "pypdfium2"), ("DATABASE_URL", "psql")])
def test_a_missing_library_is_wrong_configuration(
    arguments: list[str],
    variable: str,
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(variable, raising=False)
    if module == "psql":
        monkeypatch.setattr("convertq.embedded.binaries._in_wheels", list)
        monkeypatch.setattr("convertq.embedded.binaries._in_system", list)
        monkeypatch.delenv("CONVERTQ_PG_PREFIX", raising=False)
    else:
        monkeypatch.setitem(sys.modules, module, None)
    assert run(arguments) == ExitCode.BAD_CONFIG
    assert "pip install 'convertq[up]'" in capsys.readouterr().err
