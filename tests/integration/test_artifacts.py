"""Every file of a job is on record: in its row, or in job_artifacts; the view `artifacts` lists both."""

from __future__ import annotations

import json
from uuid import UUID

import psycopg
import pytest
from convertq.queue.artifact import list_artifacts
from convertq.queue.database.database import Database

from tests.conftest import Environment
from tests.integration.conftest import Place
from tests.jobs import Conn, insert_job
from tests.processes import run
from tests.web_client import Visitor

LOCAL = {"upload_path": "/app/uploads/x.pdf", "result_path": "/app/results/x.xml"}
STORED = {"upload_path": "s3://b/uploads/x.pdf", "result_path": "s3://b/results/x/1.1-0123456789abcdef.xml"}
SHA256 = "ab" * 32


def record(conn: Conn, job_id: UUID, path: str, **columns: object) -> None:
    values = {"kind": "result", "run": 1, "attempt": 1, "storage": "s3", "bytes": 7, "sha256": SHA256, **columns}
    conn.execute(
        "INSERT INTO job_artifacts (job_id, kind, run, attempt, storage, path_or_key, bytes, sha256) VALUES"
        " (%(id)s, %(kind)s, %(run)s, %(attempt)s, %(storage)s, %(path)s, %(bytes)s, %(sha256)s)",
        {"id": job_id, "path": path, **values},
    )


def listed(conn: Conn, job_id: UUID) -> list[tuple[object, ...]]:
    query = "SELECT kind, storage, bytes, sha256 FROM artifacts WHERE job_id = %s ORDER BY kind DESC"
    return [tuple(row.values()) for row in conn.execute(query, [job_id])]


def test_a_job_in_directories_has_no_row_besides_its_own(conn: Conn) -> None:
    job_id = insert_job(conn, "complete", sha256=SHA256, **LOCAL)
    assert listed(conn, job_id) == [("source", "local", 15, SHA256), ("result", "local", None, None)]
    assert conn.execute("SELECT FROM job_artifacts").fetchall() == []


def test_a_result_on_object_storage_is_listed_once_with_its_size_and_hash(conn: Conn) -> None:
    job_id = insert_job(conn, "complete", sha256=SHA256, **STORED)
    record(conn, job_id, STORED["result_path"])
    assert listed(conn, job_id) == [("source", "s3", 15, SHA256), ("result", "s3", 7, SHA256)]


def test_a_job_takes_its_artifacts_with_it(conn: Conn) -> None:
    job_id = insert_job(conn, "failed")
    record(conn, job_id, "s3://b/x")
    conn.execute("SET convertq.cleanup = 'on'")
    conn.execute("DELETE FROM job_events WHERE job_id = %s", [job_id])
    conn.execute("DELETE FROM jobs WHERE id = %s", [job_id])
    assert conn.execute("SELECT FROM job_artifacts").fetchall() == []


@pytest.mark.parametrize("wrong", [{"kind": "source"}, {"storage": "ftp"}, {"attempt": 0}, {"sha256": "x" * 64}])
def test_the_table_refuses_what_no_artifact_is(conn: Conn, wrong: dict[str, object]) -> None:
    job_id = insert_job(conn)
    with pytest.raises(psycopg.errors.CheckViolation):
        record(conn, job_id, "s3://b/x", **wrong)


def test_show_lists_the_files_with_their_places(conn: Conn, environment: Environment) -> None:
    job_id = insert_job(conn, "complete", **LOCAL)
    shown = run("show", str(job_id), environment=environment()).stdout
    assert [line.split() for line in shown.splitlines() if line.startswith(("source", "result"))] == [
        ["source", "local", "15", "B", LOCAL["upload_path"]],
        ["result", "local", "-", LOCAL["result_path"]],
    ]
    document = json.loads(run("show", str(job_id), "--json", environment=environment()).stdout)
    assert [each["path_or_key"] for each in document["artifacts"]] == list(LOCAL.values())


def test_an_owner_sees_the_files_without_their_places(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted()
    place.complete(job_id)
    found = visitor.get(f"/api/jobs/{job_id}/artifacts").json()["artifacts"]
    assert [(each["kind"], each["storage"], each["attempt"]) for each in found] == [
        ("source", "local", None), ("result", "local", 1),
    ]  # fmt: skip
    assert all("path_or_key" not in each for each in found)
    assert place.site.visitor().get(f"/api/jobs/{job_id}/artifacts").status_code == 403


def test_the_source_comes_first(conn: Conn, bounded: Conn) -> None:
    job_id = insert_job(conn, "complete", **STORED)
    record(conn, job_id, "s3://b/older", run=1)
    record(conn, job_id, STORED["result_path"], run=2)
    database = Database(bounded, "public")  # type: ignore[arg-type]
    assert [(each["kind"], each["run"]) for each in list_artifacts(database, job_id)] == [
        ("source", None), ("result", 1), ("result", 2),
    ]  # fmt: skip
