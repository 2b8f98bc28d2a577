"""Jobs on object storage, from end to end: a real S3 server, and a proxy that spoils requests to it."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from convertq.embedded.s3 import EmbeddedS3
from psycopg import sql
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor

from tests.conftest import SETTINGS, Dirs, Server
from tests.documents import PDF
from tests.gateway_behaviours import document, held
from tests.jobs import run as run_statement
from tests.lifecycle.conftest import pid_of_holder, wait_for_call, wait_until_past
from tests.lifecycle.test_paused import paused
from tests.processes import Process, run
from tests.s3_proxy import S3Proxy
from tests.stand_in_gateway import StandInGateway
from tests.storage import Storage, StoredDocuments
from tests.waiting import Row, eventually

PROGRAM = (sys.executable, "-m", "tests.short_timeouts_worker")


@dataclass
class Place:
    """A supervisor with one worker whose storage is behind a proxy; the tests use it one after another."""

    documents: StoredDocuments
    gateway: StandInGateway
    proxy: S3Proxy
    environment: dict[str, str]
    supervisor: Process

    @property
    def commands(self) -> dict[str, str]:
        """The settings of a command that an operator types."""
        return {name: value for name, value in self.environment.items() if name != "PYTHONPATH"}

    @property
    def storage(self) -> Storage:
        return self.documents.storage


@pytest.fixture(scope="module")
def shared_place(
    s3_server: EmbeddedS3, pg_server: Server, template: NoopExecutor, admin: psycopg.Connection,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:  # fmt: skip
    name = f"{template.dbname}_{os.urandom(4).hex()}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    admin.execute(create.format(sql.Identifier(name), sql.Identifier(template.template_dbname)))
    dirs = Dirs(tmp_path_factory.mktemp("uploads"), tmp_path_factory.mktemp("results"))
    url = pg_server.url(name)
    with (
        StandInGateway() as gateway, S3Proxy(s3_server.port) as proxy,
        psycopg.connect(url, autocommit=True, row_factory=dict_row) as conn,
    ):  # fmt: skip
        documents = StoredDocuments(conn, dirs.uploads, dirs.results)
        documents.storage = Storage(s3_server, proxy.endpoint)
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **SETTINGS, "WORKER_CONCURRENCY": "1", "CIRCUIT_WINDOW": "1000",
            "WORKER_LEASE_TTL_SEC": "4", "WORKER_LEASE_EXTEND_SEC": "1", "DATABASE_URL": url,
            "GATEWAY_URL": gateway.url, "UPLOADS_DIR": str(dirs.uploads), "RESULTS_DIR": str(dirs.results),
            "PYTHONPATH": str(Path(__file__).parents[2]), **documents.storage.environment,
        }  # fmt: skip
        process = start(environment)
        try:
            yield Place(documents, gateway, proxy, environment, process)
        finally:
            leftovers = process.end()
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    assert not leftovers


@pytest.fixture
def place(shared_place: Place) -> Iterator[Place]:
    yield shared_place
    shared_place.proxy.recover()
    shared_place.proxy.requests.clear()


def start(environment: dict[str, str], **settings: str) -> Process:
    process = Process("worker", "run", environment={**environment, **settings}, program=PROGRAM)
    process.wait_for_event("ready")
    return process


def artifacts_of(place: Place, job_id: UUID) -> list[Row]:
    query = (
        "SELECT kind, attempt, storage, path_or_key, bytes, sha256, content_type FROM job_artifacts WHERE job_id = %s"
    )
    return place.documents.conn.execute(query, [job_id]).fetchall()


def test_a_job_goes_from_the_bucket_to_the_bucket(place: Place) -> None:
    row = place.documents.wait_for(place.documents.put())
    xml = place.storage.read(row["result_path"])
    sha256 = hashlib.sha256(xml).hexdigest()
    start_of_key = f"{place.storage.url}results/{row['id']}/1.1-"
    assert (row["status"], row["result_path"]) == ("complete", f"{start_of_key}{sha256[:16]}.xml")
    assert place.storage.sha256_of(row["result_path"]) == sha256
    assert artifacts_of(place, row["id"]) == [
        {"kind": "result", "attempt": 1, "storage": "s3", "path_or_key": row["result_path"], "bytes": len(xml),
         "sha256": sha256, "content_type": "application/xml"}
    ]  # fmt: skip
    place.documents.wait_until_tidy()
    assert list(place.documents.uploads.iterdir()) == list(place.documents.results.iterdir()) == []


def test_a_whole_result_of_an_earlier_attempt_completes_the_job_without_a_call(place: Place) -> None:
    """The attempt died between the upload of its result and the commit. Only a whole result of this run counts."""
    xml, job_id = b"<whole/>", place.documents.upload()
    sha256 = hashlib.sha256(xml).hexdigest()
    key = f"{place.storage.url.prefix}results/{job_id}/1.1-{sha256[:16]}.xml"
    place.storage.bucket.put(key, xml, sha256, "application/xml", only_new=True)
    place.storage.write(f"results/{job_id}/1.2-{'0' * 16}.xml", b"<cut off")
    place.storage.write(f"results/{job_id}/2.1-{sha256[:16]}.xml", xml)
    row = place.documents.wait_for(place.documents.insert(job_id, attempt_count=1))
    assert (row["result_path"], row["attempt_count"]) == (place.storage.url.location_of(key), 2)
    assert [(each["attempt"], each["sha256"]) for each in artifacts_of(place, job_id)] == [(1, sha256)]
    assert place.gateway.requests_of(job_id) == []


def test_a_worker_paused_past_its_lease_changes_neither_row_nor_result(place: Place) -> None:
    """Its object may stay as an orphan; the published one and the row stay the other worker's."""
    documents, job_id = place.documents, place.documents.upload()
    answer = threading.Event()
    place.gateway.script_for(job_id, held(answer, document(b"<by-the-paused/>")), document(b"<by-the-other/>"))
    documents.insert(job_id)
    wait_for_call(place.gateway, job_id)
    with paused(pid_of_holder(place.supervisor, documents, job_id)):
        answer.set()
        wait_until_past(documents, documents.row(job_id)["lease_expires_at"])
        other = start(place.environment)
        row = documents.wait_for(job_id)
    place.supervisor.wait_for_event("lease_lost", job_id=str(job_id))
    assert other.stop() == 0
    assert documents.row(job_id) == row
    assert place.storage.read(row["result_path"]) == b"<by-the-other/>"
    assert documents.story(job_id) == "created queued processing reclaimed processing complete"


def test_a_worker_that_learns_late_of_a_cancel_leaves_no_object(place: Place) -> None:
    """It sleeps through the answer and the cancel: whatever it uploads afterwards, it removes again."""
    documents, job_id = place.documents, place.documents.upload()
    answer = threading.Event()
    place.gateway.script_for(job_id, held(answer))
    documents.insert(job_id)
    wait_for_call(place.gateway, job_id)
    with paused(pid_of_holder(place.supervisor, documents, job_id)):
        # A command could take longer than the lease.
        run_statement(documents.conn, "cancel_jobs", ids=[job_id], by="tests")
        answer.set()
    place.supervisor.wait_for_event("cancelled", job_id=str(job_id))
    assert documents.row(job_id)["status"] == "cancelled"
    assert list(place.storage.bucket.list_objects(f"{place.storage.url.prefix}results/{job_id}/")) == []
    assert documents.story(job_id) == "created queued processing cancelled"
    documents.wait_until_tidy()


def test_storage_that_is_away_pauses_the_pool_and_uses_no_attempt(place: Place) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(status=503, code="SlowDown")
    place.documents.insert(job_id)
    requeued = place.documents.wait_for_event(job_id, "requeued")
    held = place.supervisor.wait_for_event("held")
    row = place.documents.row(job_id)
    assert (requeued["meta"]["reason"], row["status"], row["attempt_count"]) == ("storage", "queued", 0)
    assert held["reason"] == "storage"
    place.proxy.recover()
    assert place.documents.wait_for(job_id)["attempt_count"] == 1
    assert place.documents.story(job_id) == "created queued processing requeued processing complete"


def test_a_worker_waits_for_storage_that_is_away_when_it_starts(place: Place) -> None:
    place.proxy.spoil(status=403, code="InvalidAccessKeyId")
    starting = start(place.environment)
    held = starting.wait_for_event("held")
    job_id = place.documents.put()
    assert "the access key is unknown: check AWS_ACCESS_KEY_ID" in str(held)
    assert "complete" not in place.documents.story(job_id)  # the other host may claim it once, and requeue it
    assert starting.events("claim") == []
    place.proxy.recover()
    place.documents.wait_for(job_id, "complete")
    assert starting.stop() == 0


def test_storage_that_was_away_for_a_moment_uses_no_attempt(place: Place) -> None:
    """Every try of one request fails, and by the time of the probe the storage is back."""
    job_id = place.documents.upload()
    place.proxy.spoil(method="GET", path=f"{job_id}.pdf", status=503, times=3)
    row = place.documents.wait_for(place.documents.insert(job_id))
    assert (row["status"], row["attempt_count"]) == ("complete", 1)
    assert place.documents.story(job_id) == "created queued processing complete"


def test_an_expired_token_pauses_the_pool_with_one_line_until_it_is_renewed(place: Place) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(status=400, code="ExpiredToken")
    place.documents.insert(job_id)
    assert place.documents.wait_for_event(job_id, "requeued")["meta"]["reason"] == "storage"
    message = "the session token has expired: renew the credentials (400 ExpiredToken)"
    place.supervisor.wait_for_event("held", reason="storage", message=message)
    place.proxy.recover()
    assert place.documents.wait_for(job_id)["attempt_count"] == 1


@pytest.mark.parametrize("fault", [{"delay_seconds": 0.3}, {"silent": True, "times": 1}])
def test_storage_that_is_slow_or_falls_silent_once_uses_no_attempt(place: Place, fault: dict[str, object]) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(path=str(job_id), **fault)
    row = place.documents.wait_for(place.documents.insert(job_id))
    assert (row["status"], row["attempt_count"]) == ("complete", 1)
    assert place.documents.story(job_id) == "created queued processing complete"


def test_storage_that_stays_silent_pauses_the_pool_and_uses_no_attempt(place: Place) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(silent=True)
    place.documents.insert(job_id)
    assert place.documents.wait_for_event(job_id, "requeued")["meta"]["reason"] == "storage"
    place.supervisor.wait_for_event("held", reason="storage", message="the storage did not answer in time")
    place.proxy.recover()
    assert place.documents.wait_for(job_id)["attempt_count"] == 1
    assert place.documents.story(job_id) == "created queued processing requeued processing complete"


def test_one_object_that_cannot_be_written_fails_its_job_and_no_other(place: Place) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(method="PUT", path=str(job_id), status=500, code="InternalError")
    row = place.documents.wait_for(place.documents.insert(job_id))
    assert (row["status"], row["error_code"], row["attempt_count"]) == ("failed", "IO_ERROR", 2)
    assert row["error_message"] == "the result cannot be written: storage: the request failed (500 InternalError)"
    assert place.documents.wait_for(place.documents.put())["status"] == "complete"


def test_an_object_that_has_the_key_of_a_result_is_never_replaced(place: Place) -> None:
    job_id, xml = place.documents.upload(), b"<mine/>"
    sha256 = hashlib.sha256(xml).hexdigest()
    other = place.storage.write(f"results/{job_id}/1.1-{sha256[:16]}.xml", b"<other/>")
    place.gateway.script_for(job_id, document(xml), document(xml))
    row = place.documents.wait_for(place.documents.insert(job_id))
    assert (row["status"], row["attempt_count"]) == ("complete", 2)  # the second attempt has a key of its own
    assert (place.storage.read(other), place.storage.read(row["result_path"])) == (b"<other/>", xml)


@pytest.mark.parametrize("fault", [{"cuts_after": 20}, {"status": 500}, {"status": 409, "code": "OperationAborted"}])
def test_a_source_that_arrives_only_at_the_second_request_costs_no_attempt(
    place: Place, fault: dict[str, object]
) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(method="GET", path=f"{job_id}.pdf", times=1, **fault)
    row = place.documents.wait_for(place.documents.insert(job_id))
    assert (row["status"], row["attempt_count"]) == ("complete", 1)


def test_a_truncated_source_is_not_converted(place: Place) -> None:
    """The storage shortens the object and says nothing: the hash that was stored with it does not fit."""
    job_id = place.documents.upload()
    sha256 = hashlib.sha256(PDF).hexdigest()
    key = f"{place.storage.url.prefix}uploads/{job_id}.pdf"
    place.storage.bucket.put(key, PDF, sha256, "application/pdf", only_new=False)
    place.proxy.spoil(method="GET", path=f"{job_id}.pdf", shortens=3)
    row = place.documents.wait_for(place.documents.insert(job_id))
    assert (row["error_code"], place.gateway.requests_of(job_id)) == ("IO_ERROR", [])
    assert "another content than it was stored with" in row["error_message"]


def test_a_result_whose_acknowledgement_was_lost_is_uploaded_once(place: Place) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(method="PUT", path=str(job_id), loses_answer=True, times=1)
    row = place.documents.wait_for(place.documents.insert(job_id))
    assert (row["status"], row["attempt_count"], place.proxy.count("PUT", str(job_id))) == ("complete", 1, 2)
    assert len(place.storage.results_of(job_id)) == 1


def test_a_storage_that_accepts_a_conditional_write_twice_publishes_one_whole_result(place: Place) -> None:
    job_id = place.documents.upload()
    place.proxy.spoil(method="PUT", path=str(job_id), loses_answer=True, times=1)
    place.proxy.spoil(method="PUT", path=str(job_id), accepts_twice=True)
    row = place.documents.wait_for(place.documents.insert(job_id))
    found = place.storage.read(row["result_path"])
    assert place.storage.sha256_of(row["result_path"]) == hashlib.sha256(found).hexdigest()


def test_a_source_that_is_missing_fails_its_job(place: Place) -> None:
    row = place.documents.wait_for(place.documents.insert())
    assert (row["status"], row["error_code"]) == ("failed", "IO_ERROR")
    assert row["error_message"].startswith("the source file cannot be read: ")


def test_a_source_in_the_directory_is_found_after_the_move_to_a_bucket(place: Place) -> None:
    job_id = place.documents.upload()
    place.storage.delete(f"{place.storage.url}uploads/{job_id}.pdf")
    place.documents.source(job_id).write_bytes(PDF)
    row = place.documents.wait_for(place.documents.insert(job_id))
    place.documents.source(job_id).unlink()
    assert row["result_path"].startswith("s3://")


def test_submission_dedupe_download_and_resubmission_work_on_the_bucket(place: Place, tmp_path: Path) -> None:
    documents, storage, pdf = place.documents, place.storage, tmp_path / "invoice.pdf"
    pdf.write_bytes(PDF + b"% of this test")
    submitted = run("submit", "--wait", str(pdf), environment=place.commands)
    assert (submitted.returncode, submitted.stderr) == (0, "")
    job_id = submitted.stdout.strip()
    row = documents.row(job_id)  # type: ignore[arg-type]
    assert row["upload_path"] == f"{storage.url}uploads/{job_id}.pdf"
    assert run("result", job_id, environment=place.commands).stdout.encode() == storage.read(row["result_path"])
    sources = storage.keys("uploads/")
    assert run("submit", str(pdf), environment=place.commands).stdout.strip() == job_id
    assert storage.keys("uploads/") == sources
    storage.delete(row["result_path"])
    gone = run("result", job_id, environment=place.commands)
    assert (gone.returncode, gone.stderr[:17]) == (4, "convertq: EXPIRED")
    assert run("submit", "--wait", str(pdf), environment=place.commands).stdout.strip() == job_id
    assert "/2.1-" in documents.row(job_id)["result_path"]  # type: ignore[arg-type]
    eventually(lambda: storage.keys("uploads/") == sources)


def test_a_submission_is_refused_without_a_row_while_storage_is_away(place: Place, tmp_path: Path) -> None:
    pdf = tmp_path / "invoice.pdf"
    pdf.write_bytes(PDF + b"% never stored")
    place.proxy.spoil(method="PUT", path="uploads/", status=403, code="ExpiredToken")
    refused = run("submit", str(pdf), environment=place.commands)
    assert refused.returncode == 69
    reason = "storage: the session token has expired: renew the credentials (403 ExpiredToken)"
    assert refused.stderr == f"convertq: {reason}\n"
    count = place.documents.conn.execute("SELECT count(*) FROM jobs WHERE original_filename = 'invoice.pdf'")
    assert [row["count"] for row in count] == [1]  # of another test
    assert place.documents.temporary_files() == []


def test_a_manual_retry_needs_its_source_in_the_bucket(place: Place) -> None:
    job_id = place.documents.insert()
    place.documents.wait_for(job_id, "failed")
    refused = run("retry", str(job_id), environment=place.commands)
    assert refused.returncode == 4
    place.storage.write(f"uploads/{job_id}.pdf", PDF)
    assert run("retry", str(job_id), environment=place.commands).returncode == 0
    assert "/2.1-" in place.documents.wait_for(job_id, "complete")["result_path"]
