"""One gateway call: what is sent, what each answer is called, and that it can be ended."""

from __future__ import annotations

import hashlib
import http.client
import io
import ssl
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from convertq.embedded.postgres import free_port
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.store.protocol import OpenSource
from convertq.worker.gateway.client import GatewayCall
from convertq.worker.gateway.failures import code_for_status, failure_of, is_timeout
from convertq.worker.gateway.progress import Progress
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ReadTimeoutError

from tests import gateway_behaviours as answers
from tests.documents import source_of
from tests.gateway_behaviours import Behaviour
from tests.jobs import PDF, begin, client_of, config
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

XML = b"<invoice/>"
POOL: Any = None


class Caller:
    """One call with its job, its file and what came back."""

    def __init__(self, url: str, pdf: bytes = PDF, mapping: str = "m", pretty: bool = True, **settings: object) -> None:
        self.job = ClaimedJob(uuid4(), "h:1:a/1", 1, mapping, pretty, len(pdf), is_trial=False, queued_ms=0)
        self.progress = Progress()
        self.call = GatewayCall(client_of(config(GATEWAY_URL=url, **settings)), self.job, self.progress)
        self.source = source_of(pdf)
        self.sink = io.BytesIO()

    def run(self) -> bytes:
        self.call.run(self.source, self.sink)
        return self.sink.getvalue()

    def failure(self) -> Failure:
        with pytest.raises(Failure) as raised:
            self.run()
        return raised.value


# -- what is sent --


def test_the_upload_is_the_file_with_its_options_and_its_id(gateway: StandInGateway) -> None:
    caller = Caller(gateway.url, PDF * 9, mapping="ünï", pretty=False)
    caller.run()
    [request] = gateway.wait_for(1)
    assert request.upload.fields == {"mapping": "ünï", "pretty": "0"}
    assert (request.upload.file_name, request.upload.file_type) == (f"{caller.job.id}.pdf", "application/pdf")
    assert request.upload.file_sha256 == hashlib.sha256(PDF * 9).hexdigest()
    assert request.headers["accept"] == "application/xml"
    assert request.correlation_id == str(caller.job.id)


def test_pretty_is_sent_as_a_digit(gateway: StandInGateway) -> None:
    Caller(gateway.url).run()
    assert gateway.wait_for(1)[0].upload.fields["pretty"] == "1"


# -- what comes back --


def test_a_good_answer_is_written_byte_for_byte(gateway: StandInGateway) -> None:
    body = b"<?xml version='1.0'?>\r\n<a>\r\n  <b/>\r\n</a>\r\n"
    gateway.script(answers.document(body))
    caller = Caller(gateway.url)
    assert caller.run() == body
    assert caller.call.status == 200
    assert (caller.progress.step, caller.progress.percent) == ("writing", 99)


@pytest.mark.parametrize(
    "kind",
    [
        "application/xml",
        "text/xml; charset=utf-8",
        "Application/XML",
        "application/ubl+xml",
        "image/svg+xml;x=y",
    ],
)
def test_an_xml_type_is_taken(gateway: StandInGateway, kind: str) -> None:
    gateway.script(answers.document(XML, kind))
    assert Caller(gateway.url).run() == XML


@pytest.mark.parametrize("behaviour", [answers.untyped(), answers.gzipped()], ids=lambda behaviour: behaviour.name)
def test_xml_without_a_type_or_compressed_is_taken(gateway: StandInGateway, behaviour: Behaviour) -> None:
    gateway.script(behaviour)
    assert Caller(gateway.url).run().startswith(b"<?xml")


@pytest.mark.parametrize("kind", ["text/html", "application/json", "application/pdf", "text/plain", "application/xmlx"])
def test_another_type_is_a_failure_of_the_gateway(gateway: StandInGateway, kind: str) -> None:
    gateway.script(answers.document(XML, kind))
    failure = Caller(gateway.url).failure()
    assert (failure.code, failure.gateway_status, failure.gateway_ok) == (Code.GW_5XX, 200, False)
    assert kind in failure.message


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (300, "GW_4XX"), (302, "GW_4XX"), (304, "GW_4XX"), (400, "GW_4XX"), (401, "GW_4XX"), (404, "GW_4XX"),
        (406, "GW_4XX"), (408, "GW_TIMEOUT"), (413, "GW_4XX"), (415, "GW_4XX"), (429, "GW_5XX"), (499, "GW_4XX"),
        (500, "GW_5XX"), (502, "GW_5XX"), (503, "GW_5XX"), (504, "GW_5XX"), (599, "GW_5XX"),
    ],
)  # fmt: skip
def test_a_status_has_its_code(gateway: StandInGateway, status: int, code: str) -> None:
    assert code_for_status(status) == code
    gateway.script(answers.status(status))
    failure = Caller(gateway.url).failure()
    assert (failure.code, failure.gateway_status) == (code, status)
    assert failure.called
    assert str(status) in failure.message


def test_a_redirect_is_not_followed(gateway: StandInGateway) -> None:
    gateway.script(answers.redirect(f"{gateway.url}/process"))
    assert Caller(gateway.url).failure().code == Code.GW_4XX
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "7", 7),
        (503, "9999", 600),
        (503, "-1", None),
        (503, "soon", None),
        (500, "7", None),
        (400, "7", None),
    ],
)
def test_retry_after_counts_with_429_and_503_alone(
    gateway: StandInGateway, status: int, header: str, seconds: float | None
) -> None:
    gateway.script(answers.status(status, {"Retry-After": header}))
    assert Caller(gateway.url).failure().retry_after == seconds


@pytest.mark.parametrize(
    "behaviour",
    [
        answers.empty(), answers.html(), answers.malformed(), answers.doctype(), answers.truncated(),
        answers.truncated_chunked(), answers.reset_before_headers(), answers.reset_after_headers(),
        answers.document(b'<?xml version="1.0" encoding="no-such"?><a/>'),
        answers.document(b"<a/>", "application/xml\x00"),
    ],
    ids=lambda behaviour: behaviour.name,
)  # fmt: skip
def test_an_unusable_answer_counts_against_the_gateway(gateway: StandInGateway, behaviour: Behaviour) -> None:
    gateway.script(behaviour)
    failure = Caller(gateway.url).failure()
    assert (failure.code, failure.retryable, failure.gateway_ok) == (Code.GW_5XX, True, False)
    assert failure.message.startswith(("the gateway", "the connection to the gateway"))


@pytest.mark.parametrize("status", [413, 503])
def test_an_answer_that_comes_before_the_upload_is_through_is_heard(gateway: StandInGateway, status: int) -> None:
    gateway.script(answers.early(answers.status(status)))
    failure = Caller(gateway.url, PDF + bytes(8 << 20)).failure()
    assert (failure.code, failure.gateway_status) == (code_for_status(status), status)


# -- what cannot be reached --


def test_a_refused_connection_counts_against_the_gateway() -> None:
    failure = Caller(f"http://127.0.0.1:{free_port()}").failure()
    assert (failure.code, failure.gateway_ok) == (Code.GW_5XX, False)
    assert failure.message == "the gateway refused the connection"


def test_a_name_that_does_not_resolve_counts_against_the_gateway() -> None:
    failure = Caller("http://user:hunter2@no-such-host.invalid").failure()
    assert (failure.code, failure.gateway_ok) == (Code.GW_5XX, False)
    assert failure.message == "the gateway's name cannot be resolved"
    assert "hunter2" not in repr(failure)


def test_tls_with_a_gateway_that_speaks_none_counts_against_it(gateway: StandInGateway) -> None:
    failure = Caller(gateway.url.replace("http", "https")).failure()
    assert (failure.code, failure.gateway_ok) == (Code.GW_5XX, False)


@pytest.mark.parametrize(
    "error",
    [ssl.SSLError("/etc/ssl/certs is bad"), http.client.HTTPException("http://user:hunter2@h/"), OSError("/x")],
)
def test_no_error_below_shows_its_insides(error: Exception) -> None:
    failure = failure_of(error)
    assert failure.code == Code.GW_5XX
    assert "/" not in failure.message


@pytest.mark.parametrize(
    ("error", "expected"),
    [(TimeoutError("x"), True), (ConnectTimeoutError("x"), True), (ReadTimeoutError(POOL, "/", "x"), True),
     (NewConnectionError(POOL, "refused"), False), (OSError("x"), False)],
)  # fmt: skip
def test_a_connection_that_is_refused_is_no_timeout(error: Exception, expected: bool) -> None:
    assert is_timeout(error) is expected


def test_a_silent_gateway_is_a_timeout(gateway: StandInGateway) -> None:
    gateway.script(answers.silent())
    failure = Caller(gateway.url, GATEWAY_TIMEOUT_MS=100).failure()
    assert (failure.code, failure.gateway_ok) == (Code.GW_TIMEOUT, False)
    assert failure.message == "the gateway did not finish within 0.1 s"


# -- ending it from outside --


@pytest.mark.parametrize(
    "behaviour",
    [answers.silent(), answers.drip_headers(0.02), answers.drip_body(0.02)],
    ids=lambda behaviour: behaviour.name,
)
def test_a_call_under_way_can_be_aborted(gateway: StandInGateway, behaviour: Behaviour) -> None:
    gateway.script(behaviour)
    caller = Caller(gateway.url, GATEWAY_TIMEOUT_MS=600_000)
    ending = begin(caller.failure)
    gateway.wait_for(1)
    assert caller.call.ends_at is not None
    caller.call.abort()
    assert ending.result(5).gateway_ok is False
    assert caller.call.ends_at is None


def test_an_abort_before_or_after_the_call_is_no_harm(gateway: StandInGateway) -> None:
    caller = Caller(gateway.url)
    caller.call.abort()
    caller.run()
    caller.call.abort()


# -- the disk's faults are not the gateway's --


class Broken(io.RawIOBase):
    """A file whose disk fails at the first touch."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def read(self, size: int = -1) -> bytes:
        raise self._error

    def write(self, data: Any) -> int:
        raise self._error


def test_a_source_that_cannot_be_read_does_not_count_against_the_gateway(gateway: StandInGateway) -> None:
    caller = Caller(gateway.url)
    caller.source = OpenSource(Broken(OSError(5, "Input/output error")), len(PDF))  # type: ignore[arg-type]
    failure = caller.failure()
    assert (failure.code, failure.gateway_ok, failure.retryable) == (Code.IO_ERROR, None, True)


def test_a_full_disk_does_not_count_against_the_gateway(gateway: StandInGateway) -> None:
    caller = Caller(gateway.url)
    caller.sink = Broken(OSError(28, "No space left on device"))  # type: ignore[assignment]
    failure = caller.failure()
    assert (failure.code, failure.gateway_ok, failure.retryable) == (Code.IO_ERROR, None, False)


# -- progress --


def test_progress_goes_through_its_steps(gateway: StandInGateway) -> None:
    release = threading.Event()
    gateway.script(answers.held(release))
    caller = Caller(gateway.url)
    assert (caller.progress.step, caller.progress.percent) == ("reading", 0)
    ending = begin(caller.run)
    eventually(lambda: caller.progress.step == "converting", what="the whole upload is read")
    assert caller.progress.percent == 50
    release.set()
    ending.result(5)
    assert caller.progress.step == "writing"


@pytest.mark.parametrize(
    ("step", "done", "total", "percent"),
    [
        ("reading", 50, 100, 16),
        ("reading", 200, 100, 33),
        ("writing", 0, None, 50),
        ("writing", 500, 100, 99),
    ],
)
def test_percent_never_leaves_its_bounds(step: str, done: int, total: int | None, percent: int) -> None:
    assert Progress(step, done, total).percent == percent


def test_memory_does_not_grow_with_the_answer(gateway: StandInGateway) -> None:
    gateway.script(answers.big(16))
    caller = Caller(gateway.url)
    pieces: list[int] = []
    caller.sink = Counting(pieces.append)  # type: ignore[assignment]
    caller.call.run(caller.source, caller.sink)
    assert sum(pieces) > 15 << 20
    assert max(pieces) <= 64 << 10


class Counting(io.RawIOBase):
    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count

    def write(self, data: Any) -> int:
        self._count(len(data))
        return len(data)


# -- the probe --


@pytest.mark.parametrize(
    ("status", "healthy"),
    [
        (200, True),
        (204, True),
        (404, True),
        (405, True),
        (302, False),
        (401, False),
        (429, False),
        (500, False),
        (503, False),
    ],
)
def test_a_gateway_is_healthy_with_a_2xx_or_without_the_path(
    gateway: StandInGateway, status: int, healthy: bool
) -> None:
    gateway.health = answers.status(status)
    assert client_of(config(GATEWAY_URL=f"{gateway.url}/base", GATEWAY_HEALTH_PATH="/up")).is_healthy(5) is healthy
    assert [probe.path for probe in gateway.wait_for_probes(1)] == ["/base/up"]


def test_a_gateway_that_cannot_be_reached_is_not_healthy() -> None:
    assert not client_of(config(GATEWAY_URL=f"http://127.0.0.1:{free_port()}")).is_healthy(5)


@pytest.mark.parametrize(
    "behaviour", [answers.silent(), answers.drip_headers(0.05)], ids=lambda behaviour: behaviour.name
)
def test_a_probe_ends_in_its_time(gateway: StandInGateway, behaviour: Behaviour) -> None:
    gateway.health = behaviour
    client = client_of(config(GATEWAY_URL=gateway.url))
    assert begin(lambda: client.is_healthy(0.2)).result(2) is False
