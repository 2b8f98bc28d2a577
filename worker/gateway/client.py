"""One call to the gateway: a PDF is streamed from the store, and the XML back to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import BinaryIO

from convertq.queue.errors import Code, Failure, io_failure
from convertq.queue.http_answer import Answer
from convertq.queue.job import ClaimedJob
from convertq.queue.store.protocol import OpenSource
from convertq.queue.xml_check import CHUNK_BYTES, NotXml, XmlCheck
from convertq.worker.gateway.connection import GatewayConnection
from convertq.worker.gateway.failures import NETWORK_ERRORS, failure_of, is_timeout, refuse_unless_xml
from convertq.worker.gateway.form import Form
from convertq.worker.gateway.progress import Progress
from convertq.worker.gateway.route import GatewayRoute

END_OF_HEADERS = b"\r\n\r\n"


class GatewayClient:
    """Belongs to one worker: calls that follow each other at once share a connection."""

    def __init__(self, route: GatewayRoute) -> None:
        self._route = route
        self.gateway = route.gateway
        self.timeout_seconds = route.timeout_seconds
        self.form = Form(self.gateway.file_field, self.gateway.fields)
        self.connection = GatewayConnection(route.endpoint, route.timeout_seconds)
        headers = {"Content-Type": self.form.content_type, "Accept": self.gateway.accept, "Accept-Encoding": "identity"}
        self.headers = route.endpoint.request_headers("POST", self.gateway.path, headers)

    def close_connection(self) -> None:
        """Called when no call follows at once, so that the gateway need not keep an idle connection."""
        self.connection.close()

    def is_healthy(self, timeout_seconds: float) -> bool:
        """The breaker's probe. A gateway without the health path is healthy if its answer says just that."""
        headers = self._route.endpoint.request_headers("GET", str(self.gateway.health_path), {})
        connection = GatewayConnection(self._route.endpoint, timeout_seconds)
        watchdog = threading.Timer(timeout_seconds, connection.abort)  # for an answer that arrives byte by byte
        watchdog.start()
        try:
            status = connection.begin([headers + END_OF_HEADERS]).status
            return 200 <= status < 300 or status in (404, 405)
        except NETWORK_ERRORS:
            return False
        finally:
            watchdog.cancel()
            connection.close()


class GatewayCall:
    """Runs on one thread while another one monitors it and may abort it, which shuts its socket."""

    def __init__(self, client: GatewayClient, job: ClaimedJob, progress: Progress) -> None:
        self._client, self._job, self._progress = client, job, progress
        self._started_at = 0.0
        self.ends_at: float | None = None  # by the monotonic clock, while the call is under way
        self.status: int | None = None
        self.milliseconds = 0

    def run(self, source: OpenSource, sink: BinaryIO) -> None:
        """Raises Failure."""
        self._started_at = time.monotonic()
        self.ends_at = self._started_at + self._client.timeout_seconds
        try:
            self._exchange(source, sink)
        except (Failure, *NETWORK_ERRORS) as error:
            failure = error if isinstance(error, Failure) else self._failure_of(error)
            # A disk error says nothing about the gateway, and a busy gateway is not a failing one.
            failure.called = failure.code is not Code.IO_ERROR and not failure.is_busy
            failure.gateway_status = failure.gateway_status or self.status
            failure.gateway_ms = self._elapsed_ms()
            raise failure from None
        finally:
            self.milliseconds = self._elapsed_ms()
            self.ends_at = None

    def _elapsed_ms(self) -> int:
        return int((time.monotonic() - self._started_at) * 1000)

    def _failure_of(self, error: Exception) -> Failure:
        return self.timed_out() if is_timeout(error) else failure_of(error)

    def abort(self) -> None:
        self._client.connection.abort()

    def timed_out(self) -> Failure:
        message = f"the gateway did not finish within {self._client.timeout_seconds:g} s"
        elapsed_ms = self._elapsed_ms()
        return Failure(Code.GW_TIMEOUT, message, called=True, gateway_status=self.status, gateway_ms=elapsed_ms)

    def _exchange(self, source: OpenSource, sink: BinaryIO) -> None:
        form, size = self._client.form, source.size
        self._progress.bytes_total = size
        before, after = form.before_file(self._job), form.after_file(self._job)
        length = len(before) + size + len(after)
        headers = f"\r\nContent-Length: {length}\r\nX-Correlation-ID: {self._job.name}".encode()
        beginning = b"".join((self._client.headers, headers, END_OF_HEADERS, before))
        connection, answer = self._client.connection, None
        try:
            answer = connection.begin(self._request(beginning, source.file, size, after))
            self.status = answer.status
            refuse_unless_xml(answer, self._client.gateway.busy_status)
            self._receive(answer, sink)
        finally:
            connection.end(answer)

    def _request(self, before: bytes, source: BinaryIO, size: int, after: bytes) -> Iterator[bytes]:
        """A small file goes out in one piece with what surrounds it."""
        while size > CHUNK_BYTES:
            yield before + self._read(source, CHUNK_BYTES)
            before, size = b"", size - CHUNK_BYTES
        last = self._read(source, size)
        self._progress.step = "converting"
        yield b"".join((before, last, after))

    def _read(self, source: BinaryIO, size: int) -> bytes:
        """A read error is the disk's, and must not look like one of the network."""
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
            for piece in answer.pieces():
                check.feed(piece)
                _write(sink, piece)
                self._progress.bytes_done += len(piece)
            check.finish()
        except NotXml as error:
            raise Failure(Code.GW_5XX, f"the gateway's answer is not usable: {error}") from None


def _write(sink: BinaryIO, piece: bytes) -> None:
    try:
        sink.write(piece)
    except OSError as error:
        raise io_failure("the result cannot be written", error) from None
