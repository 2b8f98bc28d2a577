"""Proof that the stand-in gateway misbehaves exactly as its scripts say."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
import requests

from tests import gateway_behaviours as answers
from tests.gateway_behaviours import Behaviour
from tests.stand_in_gateway import StandInGateway

PDF = b"%PDF-1.4\r\n--not a boundary\r\n\r\r\n" + bytes(range(256)) * 1000


def post(gateway: StandInGateway, job: str = "job-1", timeout: float = 5) -> requests.Response:
    return requests.post(
        f"{gateway.url}/process",
        files={"file": ("a.pdf", PDF, "application/pdf")},
        data={"mapping": "pt_simon_invoice_v1", "pretty": "1"},
        headers={"X-Correlation-ID": job},
        timeout=timeout,
        allow_redirects=False,
    )


def test_a_good_answer_is_xml_with_the_correlation_id(gateway: StandInGateway) -> None:
    answer = post(gateway, "job-7")
    assert answer.headers["Content-Type"] == "application/xml"
    assert ElementTree.fromstring(answer.content).get("correlation-id") == "job-7"


def test_every_request_is_recorded_with_its_form_and_the_hash_of_its_file(gateway: StandInGateway) -> None:
    post(gateway)
    [request] = gateway.wait_for(1)
    assert (request.method, request.path, request.correlation_id) == ("POST", "/process", "job-1")
    assert request.upload.fields == {"mapping": "pt_simon_invoice_v1", "pretty": "1"}
    assert request.upload.file_sha256 == hashlib.sha256(PDF).hexdigest()
    assert (request.upload.file_size, request.upload.file_type) == (len(PDF), "application/pdf")
    assert request.upload.whole


@pytest.mark.parametrize("content", [b"", b"\r\n", b"\r", b"x\r\n--", b"\r" * 70000, b"\n" * 70000, b"\r\n" * 40000])
def test_line_ends_in_the_file_are_counted_as_part_of_it(gateway: StandInGateway, content: bytes) -> None:
    requests.post(f"{gateway.url}/process", files={"file": ("a.pdf", content)}, timeout=60)
    [request] = gateway.wait_for(1)
    assert request.upload.file_size == len(content)
    assert request.upload.file_sha256 == hashlib.sha256(content).hexdigest()


def test_a_chunked_upload_is_read_like_any_other(gateway: StandInGateway) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="mapping"\r\n\r\nm1\r'
        yield b"\n--b--\r\n"

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    requests.post(f"{gateway.url}/process", data=pieces(), headers=headers, timeout=60)
    assert gateway.wait_for(1)[0].upload.fields == {"mapping": "m1"}


def test_scripts_are_followed_by_id_first_then_in_order_then_the_default(gateway: StandInGateway) -> None:
    gateway.script(answers.status(503, {"Retry-After": "7"}), answers.status(400))
    gateway.script_for("special", answers.status(418))
    gateway.default = answers.status(500)
    assert post(gateway, "special").status_code == 418
    assert post(gateway).headers["Retry-After"] == "7"
    assert [post(gateway).status_code, post(gateway).status_code] == [400, 500]


@pytest.mark.parametrize(
    ("behaviour", "status", "content_type", "start"),
    [
        (answers.empty(), 200, "application/xml", b""),
        (answers.html(), 200, "text/html; charset=utf-8", b"<html>"),
        (answers.untyped(), 200, None, b"<?xml"),
        (answers.malformed(), 200, "application/xml", b"<invoice><line></invoice>"),
        (answers.doctype(), 200, "application/xml", b"<!DOCTYPE"),
        (answers.gzipped(), 200, "application/xml", b"<?xml"),
        (answers.redirect(), 302, None, b""),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else "",
)
def test_wrong_answers_arrive_as_scripted(
    gateway: StandInGateway, behaviour: Behaviour, status: int, content_type: str | None, start: bytes
) -> None:
    gateway.script(behaviour)
    answer = post(gateway)
    assert (answer.status_code, answer.headers.get("Content-Type")) == (status, content_type)
    assert answer.content.startswith(start)
    assert bool(answer.content) == bool(start)


@pytest.mark.parametrize(
    "behaviour",
    [
        answers.truncated(),
        answers.truncated_chunked(),
        answers.reset_before_headers(),
        answers.reset_after_headers(),
        answers.early(answers.reset_before_headers()),
    ],
    ids=lambda behaviour: behaviour.name,
)
def test_broken_connections_break_the_client(gateway: StandInGateway, behaviour: Behaviour) -> None:
    gateway.script(behaviour)
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        post(gateway)


@pytest.mark.parametrize(
    "behaviour", [answers.silent(), answers.drip_headers(0.5)], ids=lambda behaviour: behaviour.name
)
def test_an_answer_that_does_not_begin_times_the_client_out(gateway: StandInGateway, behaviour: Behaviour) -> None:
    gateway.script(behaviour)
    with pytest.raises(requests.Timeout):
        post(gateway, timeout=0.2)


def test_a_dripped_body_outlasts_a_timeout_that_only_counts_silence(gateway: StandInGateway) -> None:
    gateway.script(answers.drip_body(0.06))
    began = time.monotonic()
    assert b"job-1" in post(gateway, timeout=3).content
    assert time.monotonic() - began > 3


def test_a_held_answer_comes_when_it_is_released(gateway: StandInGateway) -> None:
    release = threading.Event()
    gateway.script(answers.held(release))
    with pytest.raises(requests.Timeout):
        post(gateway, timeout=0.1)
    gateway.script(answers.held(release))
    release.set()
    assert post(gateway).status_code == 200


def test_a_big_answer_is_well_formed_and_has_the_size_asked_for(gateway: StandInGateway) -> None:
    gateway.script(answers.big(3))
    body = post(gateway).content
    assert ElementTree.fromstring(body).tag == "lines"
    assert len(body) == pytest.approx(3 << 20, rel=0.05)


def test_probes_are_answered_and_recorded_apart_from_conversions(gateway: StandInGateway) -> None:
    gateway.health = answers.status(404)
    assert requests.get(f"{gateway.url}/health", timeout=60).status_code == 404
    assert [probe.path for probe in gateway.wait_for_probes(1)] == ["/health"]
    assert gateway.requests == []


def test_a_client_that_stops_in_the_middle_is_recorded_as_not_whole(gateway: StandInGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        client.sendall(b"POST /process HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
    assert not gateway.wait_for(1)[0].upload.whole


def test_a_stopped_gateway_refuses_and_a_started_one_answers_at_the_same_address(
    gateway: StandInGateway,
) -> None:
    with requests.Session() as session:
        session.get(f"{gateway.url}/health", timeout=60)
        gateway.stop()
        with pytest.raises(requests.ConnectionError):
            session.get(f"{gateway.url}/health", timeout=60)
    gateway.start()
    assert post(gateway).status_code == 200
