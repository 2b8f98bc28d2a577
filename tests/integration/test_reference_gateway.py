"""The reference gateway over real HTTP: answers, refusals, faults, hostile documents, its process."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from convertq.gateway import samples
from convertq.gateway.mapping import FOLDER
from convertq.gateway.server import Gateway
from lxml import etree
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen.canvas import Canvas

from tests.processes import parent_of, pids
from tests.waiting import WAIT_SECONDS, eventually

SAMPLES = Path(next(iter(samples.__path__)))
INVOICES = sorted(path.stem for path in SAMPLES.glob("*.pdf") if path.with_suffix(".xml").exists())
XML = {"Accept": "application/xml"}
JSON = {"Accept": "application/json"}
HEAD = b"POST /process HTTP/1.1\r\nContent-Type: application/json\r\n"
COMMAND = [sys.executable, "-c", "from convertq.cli.gateway import gateway; gateway()", "run"]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway(allow_fault_header=True, max_bytes=5_000_000) as running:
        yield running


def sample(name: str) -> bytes:
    return (SAMPLES / f"{name}.pdf").read_bytes()


def expected(name: str) -> bytes:
    return (SAMPLES / f"{name}.xml").read_bytes()


def post(
    gateway: Gateway, pdf: bytes, mapping: str = "pt_simon_invoice_v1", pretty: str = "1", **headers: str
) -> requests.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    form = {"file": ("x.pdf", pdf, "application/pdf")}
    data = {"mapping": mapping, "pretty": pretty}
    return requests.post(f"{gateway.url}/process", files=form, data=data, headers=XML | names, timeout=60)


def pdf_of(*pages: str, encrypt: StandardEncryption | None = None) -> bytes:
    file = BytesIO()
    canvas = Canvas(file, invariant=1, pageCompression=0, encrypt=encrypt)
    for page in pages:
        for row, line in enumerate(page.splitlines()):
            canvas.drawString(50, 800 - 14 * row, line)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


@cache
def five_hundred_pages() -> bytes:
    return pdf_of(*("\n".join(f"page {page} line {line} of this report" for line in range(30)) for page in range(500)))


def pdf_without_pages() -> bytes:
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>"]
    body = b"%PDF-1.4\n"
    offsets = []
    for number, text in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj%sendobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(body)
    return body + b"xref\n0 3\n0000000000 65535 f \n%strailer<</Size 3/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        start,
    )


def assert_refused(answer: requests.Response, status: int, words: str) -> None:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.text.count("\n") == 1
    assert words in answer.json()["error"]


# --- conversions


@pytest.mark.parametrize("name", INVOICES)
def test_a_sample_invoice_becomes_its_expected_xml_byte_for_byte(gateway: Gateway, name: str) -> None:
    answer = post(gateway, sample(name))
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/xml; charset=utf-8"
    assert answer.content == expected(name)


@pytest.mark.parametrize("name", INVOICES)
def test_a_sample_invoice_is_valid_by_the_schema_of_its_mapping(gateway: Gateway, name: str) -> None:
    for mapping in ("pt_simon_invoice_v1", "text_v1"):
        document = etree.fromstring(post(gateway, sample(name), mapping).content)
        etree.XMLSchema(etree.parse(FOLDER / f"{mapping}.xsd")).assertValid(document)


def test_text_v1_gives_pages_and_paragraphs(gateway: Gateway) -> None:
    assert post(gateway, sample("papelaria"), "text_v1").content == expected("papelaria.text_v1")


@pytest.mark.parametrize("mapping", ["pt_simon_invoice_v1", "text_v1"])
def test_pdf_to_json_and_json_to_xml_give_the_same_bytes_as_pdf_to_xml(gateway: Gateway, mapping: str) -> None:
    document = post(gateway, sample("oficina"), mapping, Accept="application/json")
    assert document.headers["Content-Type"] == "application/json; charset=utf-8"
    headers = {"Content-Type": "application/json"} | XML
    url = f"{gateway.url}/process?mapping={mapping}&pretty=1"
    xml = requests.post(url, data=document.content, headers=headers, timeout=60)
    assert xml.content == post(gateway, sample("oficina"), mapping).content


def test_pretty_0_gives_the_same_document_on_one_line(gateway: Gateway) -> None:
    compact = post(gateway, sample("papelaria"), pretty="0").content
    assert compact.count(b"\n") == 1
    without_space = etree.XMLParser(remove_blank_text=True)
    assert etree.tostring(etree.fromstring(compact)) == etree.tostring(
        etree.fromstring(expected("papelaria"), without_space)
    )


def test_control_characters_and_lone_surrogates_never_reach_the_xml(gateway: Gateway) -> None:
    pdf = pdf_of("before XYZ after").replace(b"XYZ", b"\x01\x1b\x00")
    assert "before" in etree.fromstring(post(gateway, pdf, "text_v1").content).findtext("page/paragraph", "")
    body = r'{"document": {"page": "a\u0000\u0008\ud800b\ufffe <&> \ud83d\ude00"}}'
    headers = {"Content-Type": "application/json"} | XML
    answer = requests.post(f"{gateway.url}/process?mapping=text_v1", data=body, headers=headers, timeout=60)
    assert etree.fromstring(answer.content).findtext("page") == "ab <&> 😀"


def test_five_hundred_pages_are_converted(gateway: Gateway) -> None:
    document = etree.fromstring(post(gateway, five_hundred_pages(), "text_v1").content)
    assert len(document.findall("page")) == 500
    assert "page 499 line 29" in (document.findtext("page[500]/paragraph") or "")


def test_parallel_requests_each_get_their_own_answer(gateway: Gateway) -> None:
    names = INVOICES * 4
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda name: post(gateway, sample(name)).content, names))
    assert answers == [expected(name) for name in names]
    assert len(gateway.server.pool.alive) <= 4


def test_health_lists_the_mappings(gateway: Gateway) -> None:
    answer = requests.get(f"{gateway.url}/health", timeout=60)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert {"pt_simon_invoice_v1", "text_v1"} <= set(answer.json()["mappings"])


# --- refusals


@pytest.mark.parametrize(
    ("pdf", "status", "words"),
    [
        (sample("digitalizada"), 422, "no text"),
        (pdf_of("secret", encrypt=StandardEncryption("user")), 422, "encrypted"),
        (b"%PDF-1.4\n" + b"damaged " * 100, 422, "damaged"),
        (sample("papelaria")[:300], 422, "damaged"),
        (pdf_without_pages(), 422, "pages"),
        (pdf_of("no secret", encrypt=StandardEncryption("", "owner")), 422, "does not find"),
        (pdf_of("A letter, not an invoice"), 422, "does not find"),
        (b"PK\x03\x04 not a PDF", 415, "not a PDF"),
        (b"", 415, "not a PDF"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_converted_is_refused(gateway: Gateway, pdf: bytes, status: int, words: str) -> None:
    assert_refused(post(gateway, pdf), status, words)


def test_wrong_options_are_refused(gateway: Gateway) -> None:
    assert_refused(post(gateway, sample("hotel"), mapping="nope"), 400, "unknown mapping 'nope'")
    assert_refused(post(gateway, sample("hotel"), pretty="maybe"), 400, "pretty")
    assert_refused(post(gateway, sample("hotel"), Accept="text/html"), 406, "application/xml")
    no_file = requests.post(f"{gateway.url}/process", files={"other": b"x"}, headers=XML, timeout=60)
    assert_refused(no_file, 400, "no part named file")


@pytest.mark.parametrize(
    ("content_type", "accept", "body", "status", "words"),
    [
        ("application/pdf", XML, b"%PDF-", 415, "multipart"),
        ("multipart/form-data", XML, b"", 400, "malformed"),
        ("multipart/form-data; boundary=x", XML, b"no form at all", 400, "malformed"),
        ("application/json", JSON, b"{}", 406, "application/xml"),
        ("application/json", XML, b"{not json", 400, "not JSON"),
        ("application/json", XML, b"[" * 100_000, 400, "not JSON"),
        ("application/json", XML, b'{"other": 1}', 422, '{"invoice": ...}'),
        ("application/json", XML, b'{"invoice": {"a b": 1}}', 422, "name of an XML element"),
    ],
)  # fmt: skip
def test_a_body_that_makes_no_sense_is_refused(
    gateway: Gateway, content_type: str, accept: dict[str, str], body: bytes, status: int, words: str
) -> None:
    headers = {"Content-Type": content_type} | accept
    assert_refused(requests.post(f"{gateway.url}/process", data=body, headers=headers, timeout=60), status, words)


def test_other_routes_and_methods_are_refused(gateway: Gateway) -> None:
    assert_refused(requests.get(f"{gateway.url}/nothing", timeout=60), 404, "POST /process")
    wrong = requests.get(f"{gateway.url}/process", timeout=60)
    assert_refused(wrong, 405, "takes POST")
    assert wrong.headers["Allow"] == "POST"
    assert_refused(requests.delete(f"{gateway.url}/health", timeout=60), 405, "takes GET")


def test_a_file_over_the_limit_is_413_and_one_at_the_limit_is_not(gateway: Gateway) -> None:
    assert_refused(post(gateway, b"%PDF-" + bytes(5_000_000 - 5)), 422, "damaged")
    assert_refused(post(gateway, b"%PDF-" + bytes(5_000_000 - 4)), 413, "5000000 bytes")
    assert_refused(post(gateway, bytes(30_000_000)), 413, "larger than")


def test_a_chunked_upload_is_converted_and_limited(gateway: Gateway) -> None:
    form = requests.Request("POST", gateway.url, files={"file": ("x.pdf", sample("hotel"))}).prepare()
    headers = {"Content-Type": form.headers["Content-Type"]} | XML
    assert isinstance(form.body, bytes)
    pieces = [form.body[start : start + 700] for start in range(0, len(form.body), 700)]
    answer = requests.post(f"{gateway.url}/process", data=iter(pieces), headers=headers, timeout=60)
    assert answer.content == expected("hotel")
    endless = (bytes(100_000) for _ in range(60))
    assert_refused(
        requests.post(f"{gateway.url}/process", data=endless, headers=headers, timeout=60),
        413,
        "larger",
    )


def test_an_early_refusal_reaches_a_client_that_is_still_sending(gateway: Gateway) -> None:
    assert_refused(
        requests.post(f"{gateway.url}/nowhere", data=bytes(20_000_000), timeout=60),
        404,
        "POST /process",
    )


def raw(gateway: Gateway, request: bytes) -> bytes:
    address = urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (HEAD + b"\r\n", b"411"),
        (HEAD + b"Content-Length: -1\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: 9\r\n\r\n{", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nz\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"nonsense HTTP/1.1\r\n\r\n", b"400"),
    ],
)  # fmt: skip
def test_a_request_that_is_not_proper_http_is_refused(gateway: Gateway, request_bytes: bytes, status: bytes) -> None:
    answer = raw(gateway, request_bytes)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b'{"error": "' in answer


def test_continue_is_said_only_to_a_request_whose_headers_are_fine(gateway: Gateway) -> None:
    head = HEAD + b"Expect: 100-continue\r\nConnection: close\r\n"
    assert raw(gateway, head + b"Content-Length: 2\r\n\r\n{}").startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 422")
    assert raw(gateway, head + b"Content-Length: 99999999\r\n\r\n").startswith(b"HTTP/1.1 413")


def test_a_connection_serves_request_after_request(gateway: Gateway) -> None:
    address = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    for body in (b"{}", b'{"invoice": {}}'):
        connection.request("POST", "/process", body, {"Content-Type": "application/json"})
        first_socket = connection.sock
        connection.getresponse().read()
        assert connection.sock is first_socket
    connection.close()


# --- faults


def test_a_fault_in_a_header_strikes_only_where_it_is_allowed(gateway: Gateway) -> None:
    assert_refused(post(gateway, sample("hotel"), X_Fault="fail:503"), 503, "asked for")
    assert_refused(post(gateway, sample("hotel"), X_Fault="explode"), 400, "not known")
    with Gateway() as strict:
        assert post(strict, sample("hotel"), X_Fault="fail:503").status_code == 200


def test_delay_and_drip_take_their_time_and_give_the_whole_answer(gateway: Gateway) -> None:
    for fault, least in (("delay:0.3", 0.3), (f"drip:{len(expected('estudio')) * 3}", 0.3)):
        began = time.monotonic()
        assert post(gateway, sample("estudio"), X_Fault=fault).content == expected("estudio")
        assert time.monotonic() - began >= least


def test_truncate_ends_before_the_announced_length(gateway: Gateway) -> None:
    with pytest.raises(requests.exceptions.ChunkedEncodingError, match="IncompleteRead"):
        post(gateway, sample("estudio"), X_Fault="truncate")


def test_reset_resets_the_connection(gateway: Gateway) -> None:
    with pytest.raises(requests.exceptions.ConnectionError, match="reset by peer"):
        post(gateway, sample("estudio"), X_Fault="reset")


def test_one_document_fails_once_per_job_and_then_succeeds() -> None:
    rule = f"fail:502@first=1@sha256={hashlib.sha256(sample('hotel')).hexdigest()[:12]}"
    with Gateway(faults=[rule]) as gateway:
        for job in ("job-1", "job-2"):
            answers = [post(gateway, sample("hotel"), X_Correlation_ID=job) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [502, 200]
        assert post(gateway, sample("estudio"), X_Correlation_ID="job-1").status_code == 200


# --- what must not take it down


def test_a_document_that_takes_too_long_is_504_and_the_next_is_served() -> None:
    with Gateway(converters=1, seconds=0.15) as gateway:
        assert_refused(post(gateway, five_hundred_pages(), "text_v1"), 504, "longer than")
        # On a busy machine the short limit can end this one too; what must not happen is that it ends every one.
        eventually(lambda: post(gateway, sample("estudio")).content == expected("estudio"), what="the next is served")


def test_a_crash_of_the_converter_is_422_and_the_next_document_is_served() -> None:
    with Gateway(converters=1) as gateway, ThreadPoolExecutor() as threads:
        post(gateway, sample("estudio"))
        (converter,) = gateway.server.pool.idle
        converter.send_signal(signal.SIGSTOP)
        answer = threads.submit(post, gateway, sample("estudio"))
        eventually(lambda: not gateway.server.pool.idle, what="the job has begun")
        converter.send_signal(signal.SIGSEGV)
        converter.send_signal(signal.SIGCONT)
        assert_refused(answer.result(), 422, "crashed")
        assert post(gateway, sample("estudio")).content == expected("estudio")


def test_a_converter_that_died_while_idle_is_replaced_unnoticed() -> None:
    with Gateway(converters=1) as gateway:
        post(gateway, sample("estudio"))
        (converter,) = gateway.server.pool.idle
        converter.kill()
        converter.wait()
        assert post(gateway, sample("estudio")).status_code == 200


def test_stopping_ends_the_converters_the_threads_and_the_spool() -> None:
    before = threading.active_count()
    gateway = Gateway()
    gateway.start()
    with requests.Session() as idle_connection:
        idle_connection.get(f"{gateway.url}/health", timeout=60)
        post(gateway, sample("estudio"))
        spool, converters = gateway.server.folder, list(gateway.server.pool.alive)
        gateway.stop()
    assert all(converter.poll() is not None for converter in converters)
    assert not spool.exists()
    eventually(lambda: threading.active_count() <= before, what="no thread is left")


# --- the command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # a killed gateway leaves its spool behind
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_command_says_its_url_and_leaves_no_process(command: subprocess.Popen[str], number: signal.Signals) -> None:
    assert command.stdout
    line = command.stdout.readline()
    assert line.startswith("listening on http://127.0.0.1:")
    url = line.split()[-1]
    form = {"file": ("x.pdf", sample("estudio"))}
    assert requests.post(f"{url}/process", files=form, headers=XML, timeout=60).content == expected("estudio")
    converters = [pid for pid in pids() if parent_of(pid) == command.pid]
    assert converters
    command.send_signal(number)
    assert command.wait(WAIT_SECONDS) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    eventually(lambda: not any(map(parent_of, converters)), what="no converter is left")


def run_command(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{before}\nfrom convertq.cli.gateway import gateway; gateway()"
    return subprocess.run(
        [sys.executable, "-c", program, "run", *arguments], capture_output=True, text=True, timeout=30
    )


def test_a_port_in_use_is_one_clear_line(gateway: Gateway) -> None:
    port = str(urlsplit(gateway.url).port)
    ended = run_command("--port", port)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"Error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_missing_library_is_one_clear_line() -> None:
    ended = run_command(before="import sys; sys.modules['pypdfium2'] = None")
    assert ended.returncode == 1
    assert ended.stderr == "Error: gateway needs pypdfium2: pip install 'convertq[gateway]'\n"


def test_a_wrong_fault_is_wrong_usage() -> None:
    ended = run_command("--fault", "explode")
    assert ended.returncode == 2
    assert "kinds are fail, delay, drip, truncate, reset" in ended.stderr


# --- PDFs that nobody here made


@pytest.mark.skipif("CONVERTQ_FOREIGN_PDFS" not in os.environ, reason="CONVERTQ_FOREIGN_PDFS names no folder of PDFs")
def test_any_pdf_gets_valid_xml_or_a_defined_refusal() -> None:
    schema = etree.XMLSchema(etree.parse(FOLDER / "text_v1.xsd"))
    pdfs = sorted(Path(os.environ["CONVERTQ_FOREIGN_PDFS"]).glob("*.pdf"))
    assert pdfs
    with Gateway() as gateway:
        for pdf in pdfs:
            answer = post(gateway, pdf.read_bytes(), "text_v1")
            if answer.status_code == 200:
                schema.assertValid(etree.fromstring(answer.content, etree.XMLParser(huge_tree=True)))
            else:
                assert (pdf.name, answer.status_code) == (pdf.name, 422)
                assert json.loads(answer.text)["error"]
