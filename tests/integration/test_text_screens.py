"""The text screens: whole at any size, coloured where there are colours, ASCII in the C locale."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from convertq.queue.errors import Code, Failure

from tests.conftest import Dirs, Environment
from tests.jobs import Conn, claimed, fail, insert_job, queued_job, retry_later
from tests.processes import CONSOLE_SCRIPT
from tests.processes import run as run_convertq
from tests.waiting import eventually

COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)")
UTF8 = {"LANG": "C.UTF-8", "TERM": "screen-256color"}
LONG = "the gateway said: " + "m" * 170
Screens = Callable[..., list[str]]


@pytest.fixture
def commands(conn: Conn, dirs: Dirs) -> list[list[str]]:
    """Over jobs with names, owners and errors that are hard on a screen."""
    queued_job(conn, dirs, original_filename="fatura de março " + "x" * 90, owner_session_id="owner-" + "y" * 60)
    waiting = claimed(conn, original_filename="発票" * 30)
    retry_later(conn, waiting)
    failed = claimed(conn, original_filename="\x1b[31mred.pdf")
    assert fail(conn, failed, Failure(Code.GW_4XX, LONG, called=True, gateway_ms=1234))
    late = claimed(conn)
    conn.execute("UPDATE jobs SET lease_expires_at = now() - interval '1 h' WHERE id = %s", [late.id])
    conn.execute("INSERT INTO job_progress (job_id, step, percent) VALUES (%s, 'converting', 50)", [late.id])
    conn.execute(
        "UPDATE circuit_breaker SET state = 'half_open', opened_at = now(), probe_after = now(), probe_by = %s",
        [f"{'h' * 60}:1:aaaa/1"],
    )
    shows = [["show", str(job.id)] for job in (waiting, failed, late)]
    return [["stats"], ["list"], *shows, ["servers"], ["breaker"], ["doctor"], ["top", "--once"]]


@pytest.fixture
def on_screen(tmux: Callable[..., str], commands: list[list[str]], environment: Environment) -> Screens:
    """What the commands print in a terminal of this size: as it is seen, with wrapped lines joined, with colours."""

    def on_screen(width: int, height: int, **overrides: object) -> list[str]:
        given = environment(**{**UTF8, **overrides})
        variables = [f"{name}={value}" for name, value in given.items()]
        each = [shlex.join(["env", "-i", *variables, CONSOLE_SCRIPT, *command]) for command in commands]
        tmux("new-session", "-d", "-x", str(width), "-y", str(height), "; ".join([*each, "echo all done", "cat"]))

        def all_done() -> bool:
            return "all done" in tmux("capture-pane", "-p")

        eventually(all_done, what="the last command")
        return [tmux("capture-pane", "-p", "-S", "-", *how) for how in ((), ("-J",), ("-e",))]

    return on_screen


@pytest.mark.parametrize(
    ("width", "height", "overrides"),
    [
        (80, 24, {}),
        (200, 50, {}),
        (80, 24, {"NO_COLOR": "1"}),
        (80, 24, {"TERM": "vt100", "LANG": "C"}),
        (200, 50, {"TERM": "vt100", "LANG": "C"}),
    ],
)
def test_every_screen_is_whole_and_fits_its_terminal(
    on_screen: Screens, width: int, height: int, overrides: dict[str, Any]
) -> None:
    seen, joined, coloured = on_screen(width, height, **overrides)
    assert joined.rstrip() == seen.rstrip()
    assert "unexpected error" not in seen
    assert "GW_4XX" in next(line for line in seen.splitlines() if " failed " in line)  # of the list
    assert bool(COLOUR.search(coloured)) == (not overrides)
    assert seen.isascii() == ("LANG" in overrides)


def test_each_screen_has_colours_of_its_own(on_screen: Screens) -> None:
    """Where the eye should go: a status in the list, in the head of a job, in its timeline, in the servers."""
    _, _, coloured = on_screen(80, 24)
    lines = coloured.splitlines()
    assert any(re.search(r"[0-9a-f-]{36}  \x1b\[31mfailed", line) for line in lines)
    assert any(re.search(r"job [0-9a-f-]{36}: \x1b\[1m(\x1b\[)?.*31mfailed", line) for line in lines)
    assert any(re.search(r"\d\d:\d\d:\d\d .*\x1b\[33mretry", line) for line in lines)
    assert any("host:1:aaaa" in line and "\x1b[32mactive" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_wait_says_why_it_waits_and_breaks_no_word(
    tmux: Callable[..., str], conn: Conn, environment: Environment, width: int, height: int
) -> None:
    """The bar is gone when the command ends: its time is long enough to be seen on a busy machine."""
    job_id = insert_job(conn)
    conn.execute("UPDATE circuit_breaker SET state = 'open', by_hand = true, opened_at = now()")
    variables = [f"{name}={value}" for name, value in environment(**UTF8).items()]
    command = shlex.join(["env", "-i", *variables, CONSOLE_SCRIPT, "wait", str(job_id), "--timeout", "6"])
    tmux("new-session", "-d", "-x", str(width), "-y", str(height), f"{command}; echo all done; cat")
    eventually(lambda: "0 of 1: 1 queued, breaker open" in tmux("capture-pane", "-p"), what="the bar")
    eventually(lambda: "all done" in tmux("capture-pane", "-p"), what="the end")
    seen, joined = tmux("capture-pane", "-p"), tmux("capture-pane", "-p", "-J")
    assert [line.rstrip() for line in joined.splitlines()] == [line.rstrip() for line in seen.splitlines()]
    assert f"{job_id}: held: the breaker was opened by hand at" in seen
    assert "`convertq breaker close`" in " ".join(seen.split())


def test_in_a_pipe_nothing_is_cut_or_replaced(conn: Conn, environment: Environment) -> None:
    insert_job(conn, original_filename="発票" * 100)
    for locale in ("C", "C.UTF-8"):
        done = run_convertq("list", environment=environment(LANG=locale))
        assert "発票" * 100 in done.stdout
