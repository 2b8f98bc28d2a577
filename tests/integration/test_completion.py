"""Owns the promises of shell completion: what is offered, how soon, and that it never says a word of trouble."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from convertq.cli.main import COMMANDS

from tests.conftest import Environment
from tests.jobs import Conn, insert_job
from tests.processes import CONSOLE_SCRIPT
from tests.processes import run as run_convertq


def complete(line: str, environment: dict[str, str]) -> list[str]:
    """What is offered for the last word of `line`, as bash asks."""
    asked = {"_CONVERTQ_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = run_convertq(environment=environment | asked)
    assert done.stderr == ""
    return [offer.partition(",")[2] for offer in done.stdout.split()]


def test_commands_and_options(environment: Environment) -> None:
    assert complete("convertq cl", environment()) == ["cleanup"]
    assert set(complete("convertq ", environment())) <= set(COMMANDS)
    assert complete("convertq cleanup --d", environment()) == ["--dry-run"]
    assert complete("convertq completion ", environment()) == ["bash", "zsh", "fish"]


def test_statuses_codes_and_mappings(environment: Environment) -> None:
    assert complete("convertq list --status ", environment()) == [
        "uploaded", "queued", "processing", "complete", "failed",
    ]  # fmt: skip
    assert complete("convertq retry --code GW_", environment()) == ["GW_4XX", "GW_5XX", "GW_TIMEOUT"]
    given = environment(MAPPINGS_ALLOWED="invoice_v1,invoice_v2,letter")
    assert complete("convertq submit --mapping inv", given) == ["invoice_v1", "invoice_v2"]


def test_job_ids_newest_first_and_no_more_than_fifty(environment: Environment, conn: Conn) -> None:
    ids = [str(insert_job(conn, created_at=f"2026-01-01 00:{minute}")) for minute in range(55)]
    assert complete("convertq show ", environment()) == ids[:4:-1]
    assert complete(f"convertq retry {ids[-1][:8].upper()}", environment()) == [ids[-1]]
    assert complete(f"convertq submit --after {ids[-1][:8]}", environment()) == [ids[-1]]


def test_without_a_database_nothing_is_offered_and_nothing_is_said(environment: Environment) -> None:
    assert complete("convertq show ", environment(DATABASE_URL="postgresql://127.0.0.1:9/x")) == []
    assert complete("convertq show ", environment(DATABASE_URL=None)) == []
    assert complete("convertq submit --mapping x", environment(DATABASE_URL=None)) == []


def test_a_database_that_does_not_answer_is_waited_for_one_second(environment: Environment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        began = time.monotonic()
        assert complete("convertq show ", environment(DATABASE_URL=url)) == []
        assert time.monotonic() - began < 4  # the second, and the start of two processes on a busy machine


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_one_that_it_can_read(environment: Environment, shell: str, tmp_path: Path) -> None:
    done = run_convertq("completion", shell, environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_CONVERTQ_COMPLETE={shell}_complete" in done.stdout
    if program := shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.stdout)
        assert subprocess.run([program, "-n", str(script)], capture_output=True).stderr == b""


def test_bash_completes_with_the_script(environment: Environment, tmp_path: Path) -> None:
    if not (bash := shutil.which("bash")):
        pytest.skip("there is no bash here")
    script = run_convertq("completion", "bash", environment=environment()).stdout
    asking = 'COMP_WORDS=(convertq clean); COMP_CWORD=1; _convertq_completion convertq; echo "${COMPREPLY[@]}"'
    given = environment() | {"PATH": f"{Path(CONSOLE_SCRIPT).parent}:/usr/bin:/bin"}
    done = subprocess.run([bash, "-c", f"{script}\n{asking}"], env=given, capture_output=True, text=True)
    assert done.stdout == "cleanup\n"
