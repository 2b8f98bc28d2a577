"""One call to the gateway: a PDF streamed up from disk, an XML streamed down to disk, each answer given its name."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import requests
import urllib3.exceptions
from convertq.worker.config import Config
from convertq.worker.errors import Code, Failure, io_failure
from convertq.worker.form import Form
from convertq.worker.gateway_connection import Answer, Close, Gateway, Route, find_route, shut, watched_session
from convertq.worker.job import Job
from convertq.worker.retry import parse_retry_after
from convertq.worker.xml_check import CHUNK, NotXml, XmlCheck
from urllib3.connection import HTTPConnection

#: what a call may end with besides a Failure
TIMED_OUT = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)


@dataclass
class Progress:
    """Written by the thread that makes the call, read by the one that watches it."""

    step: str = "reading"
    bytes_done: int = 0
    bytes_total: int | None = None

    @property
    def percent(self) -> int:
        """Reading is the first third, waiting for the answer half way, writing the rest."""
        done = min(1.0, self.bytes_done / self.bytes_total) if self.bytes_total else 0.0
        return {"reading": int(33 * done), "converting": 50, "writing": 50 + int(49 * done)}[self.step]


def route_to_gateway(config: Config) -> Route:
    return find_route(f"{config.gateway_url}/process")


class GatewayClient:
    """A worker's: its calls go over one connection where they follow each other at once."""

    def __init__(self, config: Config, route: Route) -> None:
        self.timeout = config.gateway_timeout_ms / 1000
        self.form = Form()
        headers = {
            "Content-Type": self.form.content_type,
            "Accept": "application/xml",
            "Accept-Encoding": "identity",
        }
        self.gateway = Gateway(route, headers)


class GatewayCall:
    """Runs beside whoever watches it and may abort it, which shuts its socket."""

    def __init__(self, client: GatewayClient, job: Job, progress: Progress) -> None:
        self._client, self._job, self._progress = client, job, progress
        self._started = 0.0
        self.ends_at: float | None = None  # by the monotonic clock, while the call is under way
        self.status: int | None = None
        self.milliseconds = 0

    def run(self, source: BinaryIO, sink: BinaryIO) -> None:
        """Raises Failure."""
        self._started = time.monotonic()
        self.ends_at = self._started + self._client.timeout
        try:
            self._exchange(source, sink)
        except (Failure, *BROKEN) as error:
            failure = error if isinstance(error, Failure) else self._failure_of(error)
            failure.called = failure.code is not Code.IO_ERROR  # the disk's fault says nothing about the gateway
            failure.gateway_status = failure.gateway_status or self.status
            failure.gateway_ms = int((time.monotonic() - self._started) * 1000)
            raise failure from None
        finally:
            self.milliseconds = int((time.monotonic() - self._started) * 1000)
            self.ends_at = None

    def _failure_of(self, error: Exception) -> Failure:
        if isinstance(error, TIMED_OUT):
            return self.timed_out()
        if isinstance(error, requests.exceptions.SSLError):
            return Failure(Code.GW_5XX, "no secure connection to the gateway: its certificate or TLS was refused")
        return Failure(Code.GW_5XX, _what_broke(error), detail=repr(error)[:500])

    def abort(self) -> None:
        self._client.gateway.shut()

    def timed_out(self) -> Failure:
        message = f"the gateway did not finish within {self._client.timeout:g} s"
        elapsed = int((time.monotonic() - self._started) * 1000)
        return Failure(Code.GW_TIMEOUT, message, called=True, gateway_status=self.status, gateway_ms=elapsed)

    def _exchange(self, source: BinaryIO, sink: BinaryIO) -> None:
        answer, close = self._post(source)
        try:
            self.status = answer.status
            refuse_unless_xml(answer)
            self._receive(answer, sink)
        finally:
            close()

    def _post(self, source: BinaryIO) -> tuple[Answer, Close]:
        size = os.fstat(source.fileno()).st_size
        self._progress.bytes_total = size
        head, tail = self._client.form.head(self._job), self._client.form.tail(self._job)
        headers = {"Content-Length": str(len(head) + size + len(tail)), "X-Correlation-ID": self._job.name}
        return self._client.gateway.post(headers, self._body(head, source, size, tail), self._client.timeout)

    def _body(self, head: bytes, source: BinaryIO, size: int, tail: bytes) -> Iterator[bytes]:
        """A small file goes out in one piece with what is around it."""
        while size > CHUNK:
            yield head + self._read(source, CHUNK)
            head, size = b"", size - CHUNK
        last = self._read(source, size)
        self._progress.step = "converting"
        yield head + last + tail

    def _read(self, source: BinaryIO, size: int) -> bytes:
        """A read error is the disk's, and must not look like the network's."""
        try:
            chunk = source.read(size)
        except OSError as error:
            raise io_failure("the source file cannot be read", error) from None
        if len(chunk) < size:
            raise Failure(Code.IO_ERROR, "the source file became shorter while it was read")
        self._progress.bytes_done += size
        return chunk

    def _receive(self, answer: Answer, sink: BinaryIO) -> None:
        length = answer.header("Content-Length") or ""
        self._progress.step, self._progress.bytes_done = "writing", 0
        self._progress.bytes_total = int(length) if length.isdecimal() else None
        check = XmlCheck()
        try:
            while chunk := answer.read(CHUNK):
                check.feed(chunk)
                _write(sink, chunk)
                self._progress.bytes_done += len(chunk)
            check.finish()
        except NotXml as error:
            raise Failure(Code.GW_5XX, f"the gateway's answer is not usable: {error}") from None


def refuse_unless_xml(answer: Answer) -> None:
    """Section by section what a status means; raises Failure for all but a 2xx with XML in it."""
    status = answer.status
    if not 200 <= status < 300:
        phrase = http.client.responses.get(status, "")
        raise Failure(
            code_for_status(status), f"the gateway answered {status} {phrase}", gateway_status=status,
            retry_after=_retry_after(answer),
        )  # fmt: skip
    kind = (answer.header("Content-Type") or "").partition(";")[0].strip().lower()
    if kind and kind not in ("application/xml", "text/xml") and not kind.endswith("+xml"):
        raise Failure(
            Code.GW_5XX,
            f"the gateway answered {status} with {kind[:60]}, not with XML",
            gateway_status=status,
        )


def code_for_status(status: int) -> Code:
    if status == 408:
        return Code.GW_TIMEOUT
    if status == 429 or status >= 500:
        return Code.GW_5XX
    return Code.GW_4XX  # redirects too: they are not followed


def _retry_after(answer: Answer) -> float | None:
    if answer.status not in (429, 503):
        return None
    return parse_retry_after(answer.header("Retry-After"), answer.header("Date"))


def _write(sink: BinaryIO, chunk: bytes) -> None:
    try:
        sink.write(chunk)
    except OSError as error:
        raise io_failure("the result cannot be written", error) from None


def _what_broke(error: BaseException) -> str:
    text = repr(error)
    for sign, words in (
        ("NameResolution", "the gateway's name cannot be resolved"),
        ("refused", "the gateway refused the connection"),
        ("IncompleteRead", "the gateway's answer broke off"),
        ("NewConnection", "the gateway cannot be reached"),
    ):
        if sign in text:
            return words
    return "the connection to the gateway broke"


def is_healthy(config: Config, timeout: float) -> bool:
    """The breaker's probe. A gateway without that path counts as healthy when it answers at all below 500."""
    url = f"{config.gateway_url}{config.gateway_health_path}"
    opened: list[HTTPConnection] = []
    watchdog = threading.Timer(timeout, lambda: shut(*opened))  # for an answer that drips
    watchdog.start()
    try:
        with (
            watched_session(opened.append) as session,
            session.get(url, timeout=timeout, allow_redirects=False, stream=True) as response,
        ):
            return 200 <= response.status_code < 300 or response.status_code in (404, 405)
    except requests.RequestException:
        return False
    finally:
        watchdog.cancel()
