"""A queued PDF becomes an XML file, exactly once, whatever lies in the way."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.queue.database import connection as db
from convertq.queue.database.url import parse_database_url

from tests.documents import PDF
from tests.gateway_behaviours import Behaviour, document, gzipped, held, untyped
from tests.lifecycle.conftest import Site, wait_for_call

SITE = {"WORKER_POLL_INTERVAL_MS": "1000", "MAPPINGS_ALLOWED": "pt_simon_invoice_v1,other_v2"}
STORY = "created queued processing complete"


def xml_of(job_id: UUID) -> bytes:
    return f'<?xml version="1.0"?>\n<invoice correlation-id="{job_id}"/>\n'.encode()


def test_a_queued_pdf_becomes_xml_exactly_once(site: Site) -> None:
    job_id = site.documents.put()
    row = site.documents.wait_for(job_id)
    assert row["status"] == "complete"
    assert row["attempt_count"] == 1
    assert row["result_path"] == str(site.documents.result(job_id))
    assert row["completed_at"] is not None
    assert row["expires_at"] > row["completed_at"]
    assert row["started_at"] is not None
    assert (row["leased_by"], row["lease_expires_at"], row["error_code"], row["retry_after"]) == (None,) * 4
    assert site.documents.story(job_id) == STORY
    assert site.documents.result(job_id).read_bytes() == xml_of(job_id)
    assert site.documents.result(job_id).stat().st_mode & 0o7777 == 0o640
    assert len(site.gateway.requests_of(job_id)) == 1


def test_the_request_is_the_gateways_protocol(site: Site) -> None:
    job_id = site.documents.put(PDF * 3, mapping="other_v2", pretty=False, original_filename="a\r\nb.pdf")
    site.documents.wait_for(job_id, "complete")
    (request,) = site.gateway.requests_of(job_id)
    assert (request.method, request.path) == ("POST", "/process")
    assert request.headers["accept"] == "application/xml"
    assert request.headers["x-correlation-id"] == str(job_id)
    assert request.upload.whole
    assert request.upload.fields == {"mapping": "other_v2", "pretty": "0"}
    assert request.upload.file_type == "application/pdf"
    assert request.upload.file_size == len(PDF) * 3
    assert request.upload.file_sha256 == hashlib.sha256(PDF * 3).hexdigest()


def test_pretty_is_sent_as_one_when_it_is_wanted(site: Site) -> None:
    job_id = site.documents.put(pretty=True)
    site.documents.wait_for(job_id, "complete")
    assert site.gateway.requests_of(job_id)[0].upload.fields["pretty"] == "1"


def test_a_foreign_writers_plain_insert_is_served(site: Site) -> None:
    job_id = site.documents.upload()
    site.documents.conn.execute(
        "INSERT INTO jobs (id, bytes, sha256, status) VALUES (%s, %s, %s, 'queued')",
        [job_id, len(PDF), "f" * 64],
    )
    assert site.documents.wait_for(job_id)["status"] == "complete"
    assert site.documents.story(job_id) == STORY


def test_an_unknown_mapping_fails_without_a_gateway_call(site: Site) -> None:
    job_id = site.documents.put(mapping="nobody's")
    row = site.documents.wait_for(job_id)
    assert (row["status"], row["error_code"], row["dead_letter"]) == ("failed", "GW_4XX", False)
    assert row["attempt_count"] == 1
    assert site.gateway.requests_of(job_id) == []


def test_the_id_decides_which_file_is_read_not_the_row(site: Site, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.pdf"
    elsewhere.write_bytes(b"%PDF-secret of another")
    job_id = site.documents.put(upload_path=str(elsewhere), original_filename="../../etc/passwd")
    site.documents.wait_for(job_id, "complete")
    (request,) = site.gateway.requests_of(job_id)
    assert request.upload.file_sha256 == hashlib.sha256(PDF).hexdigest()
    assert request.upload.file_name == f"{job_id}.pdf"


def test_a_whole_leftover_result_completes_the_job_without_a_call(site: Site) -> None:
    job_id = site.documents.upload()
    site.documents.result(job_id).write_bytes(b"<left-over/>")
    site.documents.insert(job_id)
    assert site.documents.wait_for(job_id)["status"] == "complete"
    assert site.documents.result(job_id).read_bytes() == b"<left-over/>"
    assert site.gateway.requests_of(job_id) == []
    assert "gateway_ok" not in site.documents.events(job_id)[-1]["meta"]


@pytest.mark.parametrize("broken", [b"", b"<half", b'<!DOCTYPE a [<!ENTITY b "c">]><a/>'])
def test_a_broken_leftover_result_is_replaced(site: Site, broken: bytes) -> None:
    job_id = site.documents.upload()
    site.documents.result(job_id).write_bytes(broken)
    site.documents.insert(job_id)
    assert site.documents.wait_for(job_id)["status"] == "complete"
    assert site.documents.result(job_id).read_bytes() == xml_of(job_id)
    assert site.documents.story(job_id) == STORY


def test_a_symlink_in_place_of_the_source_is_not_followed(site: Site, tmp_path: Path) -> None:
    secret = tmp_path / "secret.pdf"
    secret.write_bytes(b"%PDF-secret")
    job_id = uuid4()
    site.documents.source(job_id).symlink_to(secret)
    site.documents.insert(job_id)
    row = site.documents.wait_for(job_id)
    assert (row["status"], row["error_code"]) == ("failed", "IO_ERROR")
    assert site.gateway.requests_of(job_id) == []


@pytest.mark.parametrize("content", [b"<precious/>", b"precious", None], ids=["xml", "other", "dangling"])
def test_a_symlink_in_place_of_the_result_is_never_followed(site: Site, tmp_path: Path, content: bytes | None) -> None:
    target = tmp_path / "target"
    if content is not None:
        target.write_bytes(content)
    job_id = site.documents.upload()
    site.documents.result(job_id).symlink_to(target)
    site.documents.insert(job_id)
    site.documents.wait_for(job_id)
    assert (target.read_bytes() if target.exists() else None) == content
    assert not site.documents.result(job_id).is_symlink()
    assert site.documents.result(job_id).read_bytes() == xml_of(job_id)


@pytest.mark.parametrize("content_type", ["text/xml; charset=utf-8", "application/ubl+xml", "APPLICATION/XML"])
def test_every_xml_type_is_taken_and_the_body_kept_as_sent(site: Site, content_type: str) -> None:
    body = "<?xml version='1.0' encoding='UTF-8'?>\r\n<não>€</não>\n\n".encode()
    site.gateway.script(document(body, content_type))
    job_id = site.documents.put()
    assert site.documents.wait_for(job_id)["status"] == "complete"
    assert site.documents.result(job_id).read_bytes() == body


@pytest.mark.parametrize("behaviour", [untyped(), gzipped()], ids=lambda behaviour: behaviour.name)
def test_an_answer_without_a_type_or_in_gzip_is_taken(site: Site, behaviour: Behaviour) -> None:
    job_id = site.documents.upload()
    site.gateway.script_for(job_id, behaviour)
    site.documents.insert(job_id)
    assert site.documents.wait_for(job_id)["status"] == "complete"
    assert site.documents.result(job_id).read_bytes() == xml_of(job_id)


def test_no_transaction_is_open_while_the_gateway_is_called(site: Site) -> None:
    answered = threading.Event()
    job_id = site.documents.upload()
    site.gateway.script_for(job_id, held(answered))
    site.documents.insert(job_id)
    wait_for_call(site.gateway, job_id)
    slot = site.documents.wait_for(job_id, "processing")["leased_by"].rpartition("/")[2]
    query = (
        "SELECT state, xact_start, application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'convertq:%%/' || %s"
    )
    for _ in range(50):
        (session,) = site.documents.conn.execute(query, [slot]).fetchall()
        assert (session["state"], session["xact_start"]) == ("idle", None)
    answered.set()
    site.documents.wait_for(job_id, "complete")


def test_every_session_names_its_server_and_slot(site: Site) -> None:
    (server,) = site.documents.servers()
    query = (
        "SELECT application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'convertq:%'"
    )
    names = [row["application_name"] for row in site.documents.conn.execute(query)]
    assert sorted(name.rpartition("/")[2] for name in names) == ["1", "2", "supervisor"]
    nonce = server["id"].rpartition(":")[2]
    assert all(len(name) <= 63 and f":{nonce}/" in name for name in names)


def test_a_session_is_bounded_and_kept_alive(own_postgres: EmbeddedPostgres) -> None:
    with db.connect(parse_database_url(own_postgres.url()), "convertq:test/1") as conn:
        limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        for limit in limits:
            row = conn.execute("SELECT setting::int AS ms FROM pg_settings WHERE name = %s", [limit]).fetchone()
            assert row is not None
            assert 0 < row["ms"] <= 15_000, limit
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with socket.socket(fileno=os.dup(conn.fileno())) as wire:
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert 0 < wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
            assert 0 < wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000
