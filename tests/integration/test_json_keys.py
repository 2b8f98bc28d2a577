"""The table of JSON keys: commands print the keys that it names, and no others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from convertq.cli.json_keys import DOCUMENTS, Document
from convertq.queue.errors import Code, Failure

from tests.conftest import Dirs, Environment
from tests.jobs import PDF, Conn, claimed, complete, fail, insert_job, register_server
from tests.processes import run


def documented(command: str) -> Document:
    [found] = [document for document in DOCUMENTS if document.command == command]
    return found


def inside(command: str, key: str) -> list[str]:
    return list((documented(command).inside or {})[key])


@pytest.fixture
def busy(conn: Conn, dirs: Dirs) -> None:
    """A complete, a failed and a processing job, so that no list is empty."""
    register_server(conn)
    complete(conn, claimed(conn), gateway_status=200, gateway_ms=400)
    fail(conn, claimed(conn), Failure(Code.GW_5XX, "the gateway answered 503", called=True, gateway_ms=3000))
    claimed(conn)
    conn.execute("INSERT INTO pauses (owner, by) VALUES ('anna', 'me')")
    conn.execute("INSERT INTO queue_events (event_type) VALUES ('held')")


def printed(environment: Environment, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json", environment=environment()).stdout.splitlines()]


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    "command",
    [
        "list", "stats", "servers", "servers --prune", "top --once", "doctor", "config", "reclaim", "breaker",
        "breaker open", "retry --failed", "cleanup", "migrate", "migrate --status", "log",
    ],
)  # fmt: skip
def test_a_command_prints_the_keys_of_the_table(environment: Environment, command: str) -> None:
    lines = printed(environment, *command.split())
    assert lines
    for line in lines:
        assert line.keys() == set(documented(command).keys)
    assert documented(command).lines or len(lines) == 1


@pytest.mark.usefixtures("busy")
def test_nested_objects_have_the_keys_of_the_table(environment: Environment) -> None:
    [stats], [top], [breaker] = (printed(environment, *name.split()) for name in ("stats", "top --once", "breaker"))
    [server] = printed(environment, "servers")
    assert list(server["jobs"][0]) == inside("servers", "jobs")
    assert list(top["errors"][0]) == inside("top --once", "errors")
    assert list(breaker["last_failures"][0]) == inside("breaker", "last_failures")
    for key, names in (documented("stats").inside or {}).items():
        [found] = stats[key] if isinstance(stats[key], list) else [stats[key]]
        assert found.keys() == set(names)


@pytest.mark.usefixtures("busy")
def test_retry_and_forget_have_their_keys_by_id_and_in_bulk(environment: Environment, conn: Conn) -> None:
    [one] = printed(environment, "retry", str(insert_job(conn)))
    assert one.keys() == set(documented("retry ID").keys)
    [single], [whole] = printed(environment, "forget", str(uuid4())), printed(environment, "forget", "--owner", "x")
    assert single.keys() == set(documented("forget ID").keys)
    assert whole.keys() == set(documented("forget --owner").keys)


def test_show_has_every_column_and_what_the_table_adds(environment: Environment, conn: Conn) -> None:
    job_id = insert_job(conn)
    columns = conn.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'jobs'").fetchall()
    [shown] = printed(environment, "show", str(job_id))
    assert shown.keys() == {row["column_name"] for row in columns} | set(documented("show").keys)
    assert list(shown["events"][0]) == inside("show", "events")


def test_storage_copy_counts_sources_and_results(environment: Environment) -> None:
    [summary] = printed(environment, "storage", "copy", "--to", "directories")
    assert summary.keys() == set(documented("storage copy").keys)
    assert [list(summary[kind]) for kind in ("sources", "results")] == [inside("storage copy", "sources")] * 2


def test_cleanup_lists_what_it_would_remove_and_then_its_summary(environment: Environment, dirs: Dirs) -> None:
    orphan = dirs.uploads / f"{uuid4()}.pdf"
    orphan.write_bytes(PDF)
    os.utime(orphan, (0, 0))
    [listed, summary] = printed(environment, "cleanup", "--dry-run")
    assert listed.keys() == set(documented("cleanup --dry-run").keys)
    assert summary.keys() == set(documented("cleanup").keys)


def test_submit_and_wait(environment: Environment, tmp_path: Path) -> None:
    source = tmp_path / "a.pdf"
    source.write_bytes(PDF)
    [submitted] = printed(environment, "submit", str(source))
    [waited] = printed(environment, "wait", submitted["id"], "--timeout", "0.1")
    assert submitted.keys() == set(documented("submit").keys)
    assert waited.keys() == set(documented("wait").keys)
    assert set(documented("submit --wait").keys) == submitted.keys() | waited.keys()
    source.write_bytes(b"no PDF")
    [refused] = printed(environment, "submit", "--wait", str(source))
    assert refused.keys() == set(documented("submit").keys)
