"""The ways a gateway can answer, right and wrong: one function for each, used as `status(503)`."""

from __future__ import annotations

import gzip
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler

XML_TYPE = {"Content-Type": "application/xml"}


@dataclass
class Exchange:
    """One request that waits for its answer, and the means to answer it badly."""

    handler: BaseHTTPRequestHandler
    correlation_id: str
    closing: threading.Event

    @property
    def xml(self) -> bytes:
        return f'<?xml version="1.0"?>\n<invoice correlation-id="{self.correlation_id}"/>\n'.encode()

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def send(self, data: bytes) -> None:
        self.handler.wfile.write(data)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.head(status, {**headers, "Content-Length": str(len(body))})
        self.send(body)

    def drip(self, data: bytes, seconds: float) -> None:
        for byte in data:
            if self.closing.wait(seconds):
                return
            self.send(bytes([byte]))

    def hang_up(self) -> None:
        self.handler.close_connection = True

    def reset(self) -> None:
        """A true RST: closing through the socket object would send a polite FIN first."""
        self.hang_up()
        connection = self.handler.connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(connection.detach())


@dataclass(frozen=True)
class Behaviour:
    """How to answer. With `reads_upload` false the answer comes before the upload is read."""

    name: str
    act: Callable[[Exchange], None]
    reads_upload: bool = True


def early(behaviour: Behaviour) -> Behaviour:
    """The same, but without reading the upload first."""
    return replace(behaviour, name=f"early {behaviour.name}", reads_upload=False)


def ok() -> Behaviour:
    """A small XML document that carries the correlation id."""
    return Behaviour("ok", lambda exchange: exchange.answer(200, XML_TYPE, exchange.xml))


def document(body: bytes, content_type: str = "application/xml") -> Behaviour:
    """200 with exactly this body."""
    return Behaviour("document", lambda exchange: exchange.answer(200, {"Content-Type": content_type}, body))


def status(code: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Behaviour:
    return Behaviour(f"status {code}", lambda exchange: exchange.answer(code, headers or {}, body))


def redirect(location: str = "/elsewhere") -> Behaviour:
    return status(302, {"Location": location})


def empty() -> Behaviour:
    return document(b"")


def html() -> Behaviour:
    return document(b"<html><body>Maintenance</body></html>", "text/html; charset=utf-8")


def untyped() -> Behaviour:
    """Good XML without a Content-Type."""
    return Behaviour("untyped", lambda exchange: exchange.answer(200, {}, exchange.xml))


def malformed() -> Behaviour:
    return document(b"<invoice><line></invoice>")


def doctype() -> Behaviour:
    """Well-formed, and a bomb for a parser that expands its entities."""
    return document(b'<!DOCTYPE invoice [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<invoice>&b;</invoice>')


def gzipped() -> Behaviour:
    headers = {**XML_TYPE, "Content-Encoding": "gzip"}
    return Behaviour("gzipped", lambda exchange: exchange.answer(200, headers, gzip.compress(exchange.xml)))


def truncated() -> Behaviour:
    """Content-Length promises more than is sent; what is sent is well-formed."""

    def act(exchange: Exchange) -> None:
        exchange.head(200, {**XML_TYPE, "Content-Length": str(len(exchange.xml) + 100)})
        exchange.send(exchange.xml)
        exchange.hang_up()

    return Behaviour("truncated", act)


def truncated_chunked() -> Behaviour:
    """A whole document in a chunk, but the closing chunk never comes."""

    def act(exchange: Exchange) -> None:
        exchange.head(200, {**XML_TYPE, "Transfer-Encoding": "chunked"})
        exchange.send(b"%x\r\n%b\r\n" % (len(exchange.xml), exchange.xml))
        exchange.hang_up()

    return Behaviour("truncated chunked", act)


def reset_before_headers() -> Behaviour:
    return Behaviour("reset before headers", Exchange.reset)


def reset_after_headers() -> Behaviour:
    def act(exchange: Exchange) -> None:
        exchange.head(200, {**XML_TYPE, "Content-Length": str(len(exchange.xml))})
        exchange.send(exchange.xml[:10])
        exchange.reset()

    return Behaviour("reset after headers", act)


def silent() -> Behaviour:
    """Accepts the upload and never answers."""

    def act(exchange: Exchange) -> None:
        exchange.closing.wait()
        exchange.hang_up()

    return Behaviour("silent", act)


def abandoned(closed: threading.Event) -> Behaviour:
    """Accepts the upload, never answers, and sets `closed` when the client has closed the connection."""

    def act(exchange: Exchange) -> None:
        connection = exchange.handler.connection
        connection.settimeout(0.02)
        while not exchange.closing.is_set():
            try:
                if connection.recv(1, socket.MSG_PEEK) == b"":
                    closed.set()
                    break
            except TimeoutError:
                continue
            except OSError:  # a reset closes it too
                closed.set()
                break
        exchange.hang_up()

    return Behaviour("abandoned", act)


def drip_headers(seconds: float = 1.0) -> Behaviour:
    def act(exchange: Exchange) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n"
        exchange.drip(head % len(exchange.xml) + exchange.xml, seconds)
        exchange.hang_up()

    return Behaviour("drip headers", act)


def drip_body(seconds: float = 1.0) -> Behaviour:
    def act(exchange: Exchange) -> None:
        exchange.head(200, {**XML_TYPE, "Content-Length": str(len(exchange.xml))})
        exchange.drip(exchange.xml, seconds)

    return Behaviour("drip body", act)


def delayed(seconds: float, then: Behaviour | None = None) -> Behaviour:
    def act(exchange: Exchange) -> None:
        exchange.closing.wait(seconds)
        (then or ok()).act(exchange)

    return Behaviour(f"delayed {seconds:g} s", act)


def held(release: threading.Event, then: Behaviour | None = None) -> Behaviour:
    """Answers only once the test sets `release`."""

    def act(exchange: Exchange) -> None:
        while not release.wait(0.02) and not exchange.closing.is_set():
            pass
        (then or ok()).act(exchange)

    return Behaviour("held", act)


def big(megabytes: int) -> Behaviour:
    """Well-formed XML of about so many MiB, sent from one piece that is reused."""
    piece = b"<line>0123456789</line>\n" * ((1 << 16) // 24)
    pieces = max(1, (megabytes << 20) // len(piece))

    def document_in_pieces() -> Iterator[bytes]:
        yield b"<lines>"
        for _ in range(pieces):
            yield piece
        yield b"</lines>"

    def act(exchange: Exchange) -> None:
        length = len(b"<lines></lines>") + pieces * len(piece)
        exchange.head(200, {**XML_TYPE, "Content-Length": str(length)})
        for data in document_in_pieces():
            exchange.send(data)

    return Behaviour(f"big {megabytes} MiB", act)
