"""Shell completion: what is offered, how soon, and that it never says a word of trouble."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from convertq.cli.main import COMMANDS

from tests.conftest import Environment
from tests.jobs import Conn, begin, insert_job
from tests.processes import CONSOLE_SCRIPT
from tests.processes import run as run_convertq
from tests.waiting import WAIT_SECONDS, eventually


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
        "uploaded", "queued", "processing", "complete", "failed", "cancelled",
    ]  # fmt: skip
    assert complete("convertq retry --code GW_", environment()) == ["GW_4XX", "GW_5XX", "GW_TIMEOUT"]
    given = environment(MAPPINGS_ALLOWED="invoice_v1,invoice_v2,letter")
    assert complete("convertq submit --mapping inv", given) == ["invoice_v1", "invoice_v2"]


def test_job_ids_newest_first_and_no_more_than_fifty(environment: Environment, conn: Conn) -> None:
    ids = [str(insert_job(conn, created_at=f"2026-01-01 00:{minute}")) for minute in range(55)]
    assert complete("convertq show ", environment()) == ids[:4:-1]
    assert complete(f"convertq wait {ids[-1][:8].upper()}", environment()) == [ids[-1]]
    assert complete(f"convertq submit --after {ids[-1][:8]}", environment()) == [ids[-1]]


def test_retry_offers_failed_jobs_and_result_complete_ones(environment: Environment, conn: Conn) -> None:
    failed, complete_one = (str(insert_job(conn, status)) for status in ("failed", "complete"))
    insert_job(conn)
    assert complete("convertq retry ", environment()) == [failed]
    assert complete("convertq result ", environment()) == [complete_one]


def test_without_a_database_nothing_is_offered_and_nothing_is_said(environment: Environment) -> None:
    assert complete("convertq show ", environment(DATABASE_URL="postgresql://127.0.0.1:9/x")) == []
    assert complete("convertq show ", environment(DATABASE_URL=None)) == []
    assert complete("convertq submit --mapping x", environment(DATABASE_URL=None)) == []


def seconds_until_closed(listener: socket.socket) -> float:
    """How long the first client keeps its connection: without the start of its process."""
    client, _ = listener.accept()
    with client:
        began = time.monotonic()
        while client.recv(1024):
            pass
        return time.monotonic() - began


def test_a_database_that_does_not_answer_is_waited_for_one_second(environment: Environment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        waited = begin(lambda: seconds_until_closed(silent))
        assert complete("convertq show ", environment(DATABASE_URL=url)) == []
        assert waited.result(WAIT_SECONDS) < 4  # less than any other timeout of the database


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_one_that_it_can_read(environment: Environment, shell: str, tmp_path: Path) -> None:
    done = run_convertq("completion", shell, environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_CONVERTQ_COMPLETE={shell}_complete" in done.stdout
    if program := shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.stdout)
        assert subprocess.run([program, "-n", str(script)], capture_output=True).stderr == b""


# -- in the shells themselves --


def with_convertq(given: dict[str, str]) -> dict[str, str]:
    return given | {"PATH": f"{Path(CONSOLE_SCRIPT).parent}:/usr/bin:/bin"}


def shell(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"there is no {name} here")


def test_bash_completes_commands_statuses_and_job_ids(environment: Environment, conn: Conn) -> None:
    job_id = str(insert_job(conn))
    script = run_convertq("completion", "bash", environment=environment()).stdout
    asking = '_convertq_completion convertq; echo "${COMPREPLY[@]}"'
    lines = ("clean); COMP_CWORD=1", "list --status fa); COMP_CWORD=3", f"show {job_id[:6]}); COMP_CWORD=2")
    each = [f"COMPREPLY=(); COMP_WORDS=(convertq {line}; {asking}" for line in lines]
    done = subprocess.run(
        [shell("bash"), "-c", "\n".join([script, *each])],
        env=with_convertq(environment()), capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["cleanup", "failed", job_id]


def test_fish_completes_with_whole_explanations_newest_first(environment: Environment, conn: Conn) -> None:
    fish = shell("fish")
    ids = [str(insert_job(conn, created_at=f"2026-01-0{day}")) for day in range(1, 4)]
    script = run_convertq("completion", "fish", environment=environment()).stdout
    lines = ("stat", "list --status fa", "retry --code GW_T", "show ")
    asking = "\n".join(f'complete -C "convertq {line}"' for line in lines)
    done = subprocess.run(
        [fish, "--no-config", "-c", f"{script}\n{asking}"],
        env=with_convertq(environment()), capture_output=True, text=True,
    )  # fmt: skip
    explained = f"stats\t{COMMANDS['stats'][1]}"
    assert done.stdout.splitlines() == [explained, "failed", "GW_TIMEOUT", *(f"{each}\tqueued" for each in ids[::-1])]


def test_zsh_completes_from_its_function_path(
    environment: Environment, conn: Conn, tmux: Callable[..., str], tmp_path: Path
) -> None:
    zsh, job_id = shell("zsh"), str(insert_job(conn))
    script = run_convertq("completion", "zsh", environment=environment()).stdout
    (tmp_path / "_convertq").write_text(script)
    variables = [f"{name}={value}" for name, value in with_convertq(environment(HOME=tmp_path, LANG="C.UTF-8")).items()]
    tmux("new-session", "-d", "-x", "120", "-y", "40", shlex.join(["env", "-i", "TERM=screen", *variables, zsh, "-f"]))
    eventually(lambda: tmux("capture-pane", "-p").strip(), what="the prompt")
    setting_up = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D; PS1='rea''dy> '; clear"
    tmux("send-keys", setting_up, "Enter")
    eventually(lambda: tmux("capture-pane", "-p").strip() == "ready>", what="zsh's completion")
    for typed, offered in (
        ("convertq clean", "convertq cleanup"),
        ("convertq list --status fa", "--status failed"),
        ("convertq list --status ", "processing  complete"),
        (f"convertq show {job_id[:6]}", f"convertq show {job_id}"),
    ):
        tmux("send-keys", typed)
        eventually(lambda text=typed: text.strip() in tmux("capture-pane", "-p"), what=typed)  # type: ignore[misc]
        tmux("send-keys", "Tab")  # with more keys to come zsh would take it for a tabulator
        eventually(lambda text=offered: text in tmux("capture-pane", "-p"), what=offered)  # type: ignore[misc]
        tmux("send-keys", "C-u")
