"""Owns the promise of README's list of JSON keys: what programs read is what is written there, for every command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from convertq.worker.errors import Code, Failure

from tests.conftest import Dirs, Environment
from tests.jobs import PDF, Conn, claimed, complete, fail, insert_job, register_server
from tests.processes import run

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README.partition("JSON keys</summary>")[2].partition("</details>")[0]
#: brackets hold what is inside of a key; it is looked at by itself
NESTED = re.compile(r"(\w+)[\[{]([^\]}]*)[\]}]")
OF_EVENTS = ["event_type", "at", "meta"]


def documented(command: str) -> set[str]:
    """The keys behind the command's name; up to the next command of the same line."""
    [text] = re.findall(rf"`{re.escape(command)}`[^:;\n]*: (.*?)(?=; `\w+`|\n- |\n\n)", SECTION, re.DOTALL)
    plain = NESTED.sub(r"\1", text)
    return {name for quoted in re.findall(r"`([^`]*)`", plain) for name in quoted.split() if not name.startswith("--")}


def inside(command: str, key: str) -> list[str]:
    [text] = re.findall(rf"`{re.escape(command)}`[^:;\n]*: (.*)", SECTION)
    [names] = [names for name, names in NESTED.findall(text) if name == key]
    return re.split(r",\s*", names)


@pytest.fixture
def busy(conn: Conn, dirs: Dirs) -> None:
    """Something of everything, so that no list is empty."""
    register_server(conn)
    complete(conn, claimed(conn), gateway_status=200, gateway_ms=400)
    fail(conn, claimed(conn), Failure(Code.GW_5XX, "the gateway answered 503", called=True, gateway_ms=3000))
    claimed(conn)


def printed(environment: Environment, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json", environment=environment()).stdout.splitlines()]


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("command", ["list", "stats", "servers", "top --once", "doctor", "config", "reclaim"])
def test_the_keys_are_those_in_the_readme(environment: Environment, command: str) -> None:
    lines = printed(environment, *command.split())
    assert lines
    extra = {"pruned", "kept"} if command == "servers" else set()  # of --prune
    for line in lines:
        assert line.keys() == documented(command) - extra


@pytest.mark.usefixtures("busy")
def test_the_keys_inside_are_those_in_the_readme(environment: Environment) -> None:
    [stats], [top], [breaker] = (printed(environment, *name.split()) for name in ("stats", "top --once", "breaker"))
    [server] = printed(environment, "servers")
    assert list(server["jobs"][0]) == inside("servers", "jobs")
    assert list(top["errors"][0]) == inside("top --once", "errors")
    assert list(breaker["last_failures"][0]) == inside("breaker", "last_failures")
    assert stats["breaker"].keys() == breaker.keys() - {"last_failures"}
    for key in ("completed_per_minute", "gateway_seconds", "totals", "servers"):
        assert set(stats[key]) == set(inside("stats", key))


@pytest.mark.usefixtures("busy")
def test_breaker_and_retry_and_cleanup_say_more_after_a_change(environment: Environment, conn: Conn) -> None:
    [before], [after] = printed(environment, "breaker"), printed(environment, "breaker", "open")
    assert after.keys() == documented("breaker") - {"open", "close"} == before.keys() | {"changed"}
    [one], [bulk] = printed(environment, "retry", str(insert_job(conn))), printed(environment, "retry", "--failed")
    assert one.keys() | bulk.keys() == documented("retry")
    [summary] = printed(environment, "cleanup")
    assert summary.keys() == documented("cleanup") - {"kind", "name", "job_id", "since"}


def test_show_has_every_column_and_what_the_readme_adds(environment: Environment, conn: Conn) -> None:
    job_id = insert_job(conn)
    columns = conn.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'jobs'").fetchall()
    [shown] = printed(environment, "show", str(job_id))
    assert shown.keys() == {row["column_name"] for row in columns} | documented("show")
    assert list(shown["events"][0]) == inside("show", "events") == OF_EVENTS


def test_submit_wait_and_migrate(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "a.pdf"
    source.write_bytes(PDF)
    [submitted] = printed(environment, "submit", str(source))
    [waited] = printed(environment, "wait", submitted["id"], "--timeout", "0.1")
    assert waited.keys() == documented("wait")
    assert submitted.keys() == documented("submit") - (waited.keys() - {"id"})
    [applied], [first, *_] = printed(environment, "migrate"), printed(environment, "migrate", "--status")
    assert applied.keys() | first.keys() == documented("migrate")
