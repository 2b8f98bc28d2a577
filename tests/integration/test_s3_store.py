"""Object storage without workers: cleanup, doctor, the web, wrong credentials, and two places at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import requests
from convertq.embedded.s3 import EmbeddedS3
from convertq.queue.config import read_config
from convertq.queue.database.database import Database
from convertq.queue.errors import StorageError
from convertq.queue.retention import Kind, Retention
from convertq.queue.store import open_store, protocol, s3_signature
from convertq.queue.store.protocol import Store
from convertq.queue.store.run_mark import RUN_ATTRIBUTE
from convertq.queue.store.s3_client import Request

from tests.conftest import Dirs, Environment, Web
from tests.documents import PDF
from tests.jobs import Conn, insert_job
from tests.processes import run
from tests.s3_proxy import S3Proxy
from tests.storage import Storage
from tests.waiting import eventually
from tests.web_client import Site, Visitor, error_of

XML = b"<invoice>\n</invoice>\n"


@pytest.fixture
def here(environment: Environment, storage: Storage) -> dict[str, str]:
    """The settings of a command."""
    return environment(**storage.environment)


@pytest.fixture
def s3_proxy(s3_server: EmbeddedS3) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.port) as proxy:
        yield proxy


def open_with(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Store:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, environment[name])
    return open_store(read_config(environment))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, here: dict[str, str]) -> Store:
    return open_with(monkeypatch, here)


def complete(conn: Conn, storage: Storage, xml: bytes = XML, **columns: object) -> tuple[UUID, str]:
    """A complete job with its result, as a worker leaves it; and where the result is."""
    job_id, sha256 = uuid4(), hashlib.sha256(xml).hexdigest()
    key = f"{storage.url.prefix}results/{job_id}/1.1-{sha256[:16]}.xml"
    storage.bucket.put(key, xml, sha256, "application/xml", only_new=True)
    location = storage.url.location_of(key)
    insert_job(conn, "complete", id=job_id, result_path=location, **columns)
    return job_id, location


# -- cleanup --


def test_cleanup_deletes_what_has_expired_and_what_no_row_names(
    conn: Conn, storage: Storage, here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, kept_at = complete(conn, storage)
    _, expired_at = complete(conn, storage, expires_at="yesterday")
    storage.write(f"results/{kept}/1.2-{'0' * 16}.xml", XML)
    unknown = storage.write(f"uploads/{uuid4()}.pdf", PDF)
    foreign = storage.write("uploads/readme.txt", b"not convertq's")
    fresh = run("cleanup", "--json", environment=here)
    done = json.loads(fresh.stdout)
    assert (done["results"], done["bytes"]) == (1, len(XML))
    assert [storage.sha256_of(each) != "" for each in (kept_at, expired_at)] == [True, False]
    assert storage.keys("uploads/") == sorted(_names(storage, unknown, foreign))  # not a day old
    assert len(storage.results_of(kept)) == 2
    assert _cleanup_a_day_later(here, monkeypatch) == 2
    assert storage.keys() == sorted(_names(storage, kept_at, foreign))


def _names(storage: Storage, *locations: str) -> list[str]:
    return [location.removeprefix(str(storage.url)) for location in locations]


def _cleanup_a_day_later(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> int:
    """In this process, where a day is shorter: nothing in the bucket is older than this test. Counts orphans."""
    monkeypatch.setattr(protocol, "ORPHAN_AGE_SECONDS", -10.0)
    config = read_config(environment)
    store, database = open_with(monkeypatch, environment), Database.open(config.database, "convertq:tests")
    try:
        return sum(1 for item in Retention(database, store, config).run() if item.kind is Kind.ORPHAN)
    finally:
        database.close()


def test_cleanup_keeps_the_result_that_a_running_job_may_be_completed_from(
    conn: Conn, storage: Storage, here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = insert_job(conn, "processing")
    storage.write(f"results/{job_id}/1.1-{'0' * 16}.xml", XML)
    _cleanup_a_day_later(here, monkeypatch)
    assert len(storage.results_of(job_id)) == 1


def test_cleanup_ends_unfinished_multipart_uploads_of_its_own_keys(
    storage: Storage, here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (f"uploads/{uuid4()}.pdf", "uploads/another.pdf"):
        storage.bucket.client.send(Request("POST", f"{storage.url.prefix}{name}", {"uploads": ""}))
    _cleanup_a_day_later(here, monkeypatch)
    left = [upload.key for upload in storage.bucket.list_uploads(storage.url.prefix)]
    assert left == [f"{storage.url.prefix}uploads/another.pdf"]


def test_forget_deletes_every_object_of_the_job(conn: Conn, storage: Storage, here: dict[str, str]) -> None:
    job_id, _ = complete(conn, storage)
    storage.write(f"results/{job_id}/1.2-{'0' * 16}.xml", XML)
    storage.write(f"uploads/{job_id}.pdf", PDF)
    assert run("forget", str(job_id), environment=here).returncode == 0
    assert storage.keys() == []


def test_cleanup_removes_nothing_while_the_bucket_is_not_there(here: dict[str, str], conn: Conn) -> None:
    missing = {**here, "STORAGE_URL": "s3://no-such-bucket/x"}
    refused = run("cleanup", environment=missing)
    assert (refused.returncode, refused.stderr) == (
        69,
        "convertq: storage: the bucket does not exist: create it, or correct STORAGE_URL (404 NoSuchBucket)\n",
    )


# -- doctor --


def findings(environment: dict[str, str]) -> list[tuple[str, str]]:
    lines = run("doctor", "--json", environment=environment).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return [(each["state"], each["what"]) for each in found if each["check"] == "storage"]


def test_doctor_proves_that_the_storage_does_all_that_is_needed(here: dict[str, str], storage: Storage) -> None:
    (first, *others) = findings(here)
    assert first == ("ok", f"{storage.url}: reads, writes, lists, deletes, and honours If-None-Match")
    assert {state for state, _ in others} <= {"ok", "warn"}
    assert storage.keys() == []


def test_doctor_finds_storage_that_ignores_conditions(
    environment: Environment, s3_proxy: S3Proxy, storage: Storage
) -> None:
    s3_proxy.spoil(method="PUT", accepts_twice=True)
    behind = environment(**{**storage.environment, "S3_ENDPOINT_URL": s3_proxy.endpoint})
    assert findings(behind)[0] == (
        "bad", f"{storage.url}: it replaces an object although If-None-Match forbids that",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key is wrong: check AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "unknown"}, "the access key is unknown: check AWS_ACCESS_KEY_ID"),
        ({"STORAGE_URL": "s3://no-such-bucket"}, "the bucket does not exist: create it, or correct STORAGE_URL"),
        ({"S3_ENDPOINT_URL": "http://127.0.0.1:1"}, "the storage cannot be reached: check S3_ENDPOINT_URL"),
    ],
)
def test_doctor_names_the_remedy(here: dict[str, str], settings: dict[str, str], reason: str) -> None:
    ((state, what),) = findings({**here, **settings})
    assert (state, reason in what) == ("bad", True)


# -- the client --


def test_a_clock_that_is_an_hour_wrong_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y%m%dT%H%M%SZ")
    monkeypatch.setattr(s3_signature, "timestamp", lambda: later)
    with pytest.raises(StorageError, match="this host's clock is wrong: set it"):
        store.open_source(uuid4())


def test_credentials_that_were_renewed_are_used_at_the_next_request(
    store: Store, here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
    with pytest.raises(StorageError):
        store.open_source(uuid4())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", here["AWS_SECRET_ACCESS_KEY"])
    with pytest.raises(FileNotFoundError):
        store.open_source(uuid4())


def test_a_token_that_expires_in_a_running_process_is_replaced_from_the_file_at_once(
    environment: Environment, storage: Storage, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The request that meets the expiry is sent again with the new credentials, and nobody notices."""
    file, settings = tmp_path / "credentials", storage.environment
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def write(key: str) -> None:
        secret = settings["AWS_SECRET_ACCESS_KEY"]
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")

    s3_proxy.spoil(credential="EXPIRED", status=400, code="ExpiredToken")
    store = open_store(read_config(environment(**{**settings, "S3_ENDPOINT_URL": s3_proxy.endpoint})))
    write("EXPIRED")
    with pytest.raises(StorageError, match="the session token has expired: renew the credentials"):
        store.open_source(uuid4())
    assert s3_proxy.count("GET") == 1
    write(settings["AWS_ACCESS_KEY_ID"])
    with pytest.raises(FileNotFoundError):
        store.open_source(uuid4())
    assert s3_proxy.count("GET") == 3


def test_a_silent_transfer_is_ended_from_another_thread_and_not_tried_again(
    environment: Environment, storage: Storage, s3_proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_with(monkeypatch, environment(**{**storage.environment, "S3_ENDPOINT_URL": s3_proxy.endpoint}))
    s3_proxy.spoil(method="HEAD", silent=True)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(store.has_source, uuid4())
        eventually(lambda: s3_proxy.count("HEAD") == 1)
        store.abort_transfers()
        with pytest.raises(StorageError, match="the transfer was aborted"):
            asked.result(timeout=10)
    assert s3_proxy.count("HEAD") == 1
    s3_proxy.recover()
    store.permit_transfers()
    assert not store.has_source(uuid4())


def test_a_row_can_name_no_object_but_a_result_of_its_own_job(store: Store, storage: Storage) -> None:
    job_id, other = uuid4(), uuid4()
    of_other = storage.write(f"results/{other}/1.1-{'0' * 16}.xml", XML)
    secret = storage.write("secret.txt", b"secret")
    elsewhere = f"s3://another-bucket/results/{job_id}/1.1-{'0' * 16}.xml"
    for location in (of_other, secret, elsewhere, "/etc/passwd", None):
        assert not store.has_result(job_id, location)
        with pytest.raises(FileNotFoundError):
            store.open_result(job_id, location)
    assert not store.has_result(job_id, f"{storage.url}results/{job_id}/../{other}/1.1-{'0' * 16}.xml")


def test_a_large_source_is_read_in_constant_memory_and_leaves_no_file(
    store: Store, storage: Storage, dirs: Dirs
) -> None:
    job_id, content = uuid4(), b"%PDF-" + bytes(3 << 20)
    storage.write(f"uploads/{job_id}.pdf", content)
    with store.open_source(job_id).file as file:
        assert not hasattr(file, "getbuffer")  # on disk, not in memory
        assert (file.read(), list(dirs.uploads.iterdir())) == (content, [])


def test_a_job_from_before_the_move_is_read_from_the_directories(store: Store, dirs: Dirs) -> None:
    job_id = uuid4()
    (dirs.uploads / f"{job_id}.pdf").write_bytes(PDF)
    (dirs.results / f"{job_id}.xml").write_bytes(XML)
    assert store.find_sources([job_id, uuid4()]) == [job_id]
    assert store.open_source(job_id).file.read() == PDF
    assert store.open_result(job_id, f"{dirs.results}/{job_id}.xml").file.read() == XML


def test_a_job_from_before_the_move_back_is_read_from_the_bucket(
    conn: Conn, environment: Environment, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = {**storage.environment, "STORAGE_URL": "", "STORAGE_READ_URL": str(storage.url)}
    store = open_with(monkeypatch, environment(**back))
    job_id, location = complete(conn, storage)
    assert store.open_result(job_id, location).file.read() == XML
    assert store.source_location(job_id).startswith("/")


# -- the web --


@pytest.fixture
def stored_site(web: Web, storage: Storage) -> Site:
    return web(**storage.environment)


def owned(conn: Conn, site: Site, storage: Storage) -> tuple[Visitor, UUID, str]:
    visitor = site.visitor()
    job_id, location = complete(conn, storage, owner_session_id=visitor.owner, original_filename="invoice.pdf")
    return visitor, job_id, location


def test_the_web_stores_uploads_and_passes_results_on(conn: Conn, stored_site: Site, storage: Storage) -> None:
    visitor, job_id, location = owned(conn, stored_site, storage)
    uploaded = stored_site.visitor().submitted()
    assert storage.keys("uploads/") == [f"uploads/{uploaded}.pdf"]
    path = f"/api/jobs/{job_id}/download"
    whole, part, head = visitor.get(path), visitor.get(path, headers={"Range": "bytes=3-6"}), visitor.head(path)
    assert (whole.content, whole.headers["Content-Disposition"]) == (XML, "attachment; filename=invoice.xml")
    assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, XML[3:7], f"bytes 3-6/{len(XML)}")
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, str(len(XML)), b"")
    assert visitor.get(path, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
    assert [row["download_count"] for row in conn.execute("SELECT * FROM jobs WHERE id = %s", [job_id])] == [1]
    storage.delete(location)
    assert error_of(visitor.get(path)) == (410, "EXPIRED")


def test_a_presigned_download_is_a_redirect_that_a_browser_can_follow(conn: Conn, web: Web, storage: Storage) -> None:
    site = web(**storage.environment, S3_PRESIGNED_DOWNLOADS=1)
    visitor, job_id, location = owned(conn, site, storage)
    path = f"/api/jobs/{job_id}/download"
    sent = visitor.get(path, allow_redirects=False)
    assert (sent.status_code, sent.headers["Cache-Control"]) == (307, "no-store")
    assert "X-Amz-Expires=300" in sent.headers["Location"]
    found = requests.get(sent.headers["Location"], timeout=10)
    assert (found.content, found.headers["Content-Type"]) == (XML, "application/xml")
    assert found.headers["Content-Disposition"] == "attachment; filename=invoice.xml"
    assert visitor.head(path).status_code == 200
    assert error_of(site.visitor().get(path)) == (403, "FORBIDDEN")
    assert [row["download_count"] for row in conn.execute("SELECT * FROM jobs WHERE id = %s", [job_id])] == [1]
    assert "X-Amz-Signature" not in site.process.tail(100)
    storage.delete(location)
    assert error_of(visitor.get(path)) == (410, "EXPIRED")


def test_the_web_answers_503_while_storage_is_away_and_lists_trust_the_rows(
    conn: Conn, web: Web, storage: Storage, s3_proxy: S3Proxy
) -> None:
    site = web(**{**storage.environment, "S3_ENDPOINT_URL": s3_proxy.endpoint})
    visitor, job_id, _ = owned(conn, site, storage)
    s3_proxy.spoil(status=503, code="SlowDown")
    assert error_of(visitor.get(f"/api/jobs/{job_id}/download")) == (503, "UNAVAILABLE")
    s3_proxy.requests.clear()
    assert [job["can_download"] for job in visitor.get("/api/jobs").json()["jobs"]] == [True]
    assert s3_proxy.requests == []
    assert error_of(visitor.submit()) == (503, "UNAVAILABLE")
    assert len(visitor.get("/api/jobs").json()["jobs"]) == 1


def test_the_settings_are_refused_whole(environment: Environment) -> None:
    wrong = environment(STORAGE_URL="https://bucket", S3_ENDPOINT_URL="ftp://x", S3_PRESIGNED_DOWNLOADS="maybe")
    refused = run("list", environment=wrong)
    assert refused.returncode == 78
    assert [line.split()[1] for line in refused.stderr.splitlines()] == [
        "STORAGE_URL", "S3_ENDPOINT_URL", "S3_PRESIGNED_DOWNLOADS",
    ]  # fmt: skip


# -- storage copy --


def in_directories(conn: Conn, dirs: Dirs, status: str = "complete", **others: object) -> UUID:
    job_id, pdf = uuid4(), PDF + str(uuid4()).encode()
    (dirs.uploads / f"{job_id}.pdf").write_bytes(pdf)
    columns: dict[str, object] = {"upload_path": f"{dirs.uploads}/{job_id}.pdf", "bytes": len(pdf)}
    if status == "complete":
        (dirs.results / f"{job_id}.xml").write_bytes(XML)
        columns |= {"result_path": f"{dirs.results}/{job_id}.xml", "attempt_count": 1}
    return insert_job(conn, status, id=job_id, sha256=hashlib.sha256(pdf).hexdigest(), **columns | others)


def copy(environment: dict[str, str], target: str, *options: str) -> dict[str, Any]:
    done = run("storage", "copy", "--to", target, "--json", *options, environment=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_storage_copy_moves_every_job_to_the_bucket_and_back(
    conn: Conn, storage: Storage, here: dict[str, str], dirs: Dirs
) -> None:
    jobs = [in_directories(conn, dirs, status) for status in ("complete", "complete", "queued", "failed")]
    first = copy(here, str(storage.url), "--verify")
    assert (first["sources"]["copied"], first["results"]["copied"]) == (4, 2)
    assert len(storage.keys()) == 6
    for job_id in jobs[:2]:
        assert run("result", str(job_id), environment=here).stdout.encode() == XML
    listed = conn.execute("SELECT DISTINCT storage, kind FROM artifacts ORDER BY kind").fetchall()
    assert [tuple(row.values()) for row in listed] == [("s3", "result"), ("s3", "source")]
    again = copy(here, str(storage.url), "--verify")
    assert (again["sources"]["copied"], again["results"]["copied"], again["bytes"]) == (0, 0, 0)
    for path in [*dirs.uploads.iterdir(), *dirs.results.iterdir()]:
        path.unlink()
    back = {**here, "STORAGE_URL": "", "STORAGE_READ_URL": str(storage.url)}
    assert copy(back, "directories")["results"]["copied"] == 2
    assert (dirs.results / f"{jobs[0]}.xml").read_bytes() == XML
    assert len(list(dirs.uploads.iterdir())) == 4
    assert conn.execute("SELECT FROM job_artifacts").fetchall() == []
    assert len(storage.keys()) == 6  # nothing is deleted


def test_storage_copy_keeps_the_run_of_a_result_and_finds_the_first_copy_again(
    conn: Conn, storage: Storage, here: dict[str, str], dirs: Dirs
) -> None:
    job_id = in_directories(conn, dirs, run=3, attempt_count=2)
    os.setxattr(dirs.results / f"{job_id}.xml", RUN_ATTRIBUTE, b"3")
    copy(here, str(storage.url))
    listed = conn.execute("SELECT run, attempt, path_or_key FROM job_artifacts").fetchall()
    assert [(row["run"], row["attempt"]) for row in listed] == [(3, 2)]
    assert f"/results/{job_id}/3.2-" in listed[0]["path_or_key"]
    back = {**here, "STORAGE_URL": "", "STORAGE_READ_URL": str(storage.url)}
    assert copy(back, "directories", "--verify")["results"]["copied"] == 1


def test_storage_copy_reports_a_damaged_copy_and_what_is_missing(
    conn: Conn, storage: Storage, here: dict[str, str], dirs: Dirs
) -> None:
    damaged, missing = in_directories(conn, dirs, "failed"), in_directories(conn, dirs)
    storage.write(f"uploads/{damaged}.pdf", b"%PDF- another")
    (dirs.results / f"{missing}.xml").unlink()
    done = run("storage", "copy", "--to", str(storage.url), "--verify", environment=here)
    assert done.returncode == 1
    assert done.stderr == (f"{damaged}: the source was not copied: the copy has another checksum than the original\n")
    assert (
        done.stdout == f"copied 1 source and 0 results ({len(PDF) + 36} B); 0 there, 1 missing, 0 changed, 1 failed\n"
    )


def test_storage_copy_refuses_a_target_that_nothing_reads(here: dict[str, str]) -> None:
    refused = run("storage", "copy", "--to", "s3://elsewhere", environment=here)
    assert refused.returncode == 2
    assert "set STORAGE_URL or STORAGE_READ_URL = s3://elsewhere/ on every host first" in refused.stderr


def test_nothing_is_left_of_a_job_that_was_forgotten_while_it_was_converted(store: Store, storage: Storage) -> None:
    job_id = uuid4()
    storage.write(f"results/{job_id}/1.1-{'0' * 16}.xml", XML)
    store.remove_result(job_id)
    assert storage.results_of(job_id) == []
