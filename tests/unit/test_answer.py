"""The reader of answers: HTTP is read exactly, all else is an error, memory is bounded."""

from __future__ import annotations

import gzip
import http.client
import socket
import zlib
from collections.abc import Iterator

import pytest
from convertq.queue.http_answer import MAX_HEADER_BYTES, PIECE_BYTES, Answer, MalformedAnswer

Pair = tuple[socket.socket, socket.socket]
START = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml; charset=utf-8\r\n"
USUAL = START + b"Content-Length: 4\r\n\r\n<a/>"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
READABLE = {
    "the usual": USUAL,
    "an interim answer first": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + USUAL,
    "HTTP/1.0": USUAL.replace(b"1.1", b"1.0"),
    "no phrase": USUAL.replace(b"200 OK", b"200"),
    "lines that end with LF alone": USUAL.replace(b"\r\n", b"\n"),
    "no length": START + b"\r\n<a/>",
    "the same length twice": USUAL.replace(b"Content-Length: 4", b"Content-Length: 4\r\ncontent-length: 4"),
    "one chunk": CHUNKED + b"4\r\n<a/>\r\n0\r\n\r\n",
    "chunks with extensions and trailers": CHUNKED + b"1;x=y\r\n<\r\n03\r\na/>\r\n0\r\nX: y\r\nZ: 1\r\n\r\n",
    "a chunked length that lies": CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\n")
    + b"4\r\n<a/>\r\n0\r\n\r\n",
    "gzip": START + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"<a/>"),
    "deflate": START + b"Content-Encoding: Deflate\r\n\r\n" + zlib.compress(b"<a/>"),
    "a folded line": USUAL.replace(b"; charset", b";\r\n charset"),
}
MALFORMED = {
    "no HTTP": b"<a/>\r\n\r\n",
    "another version": USUAL.replace(b"1.1", b"2.0"),
    "no status": USUAL.replace(b"200", b"abc"),
    "a negative length": USUAL.replace(b": 4", b": -4"),
    "two lengths": USUAL.replace(b"Content-Length: 4", b"Content-Length: 4\r\ncontent-length: 9"),
    "a line without a name": USUAL.replace(b"Content-Type", b""),
    "a line without a colon": USUAL.replace(b"Content-Type:", b"Content-Type"),
    "headers without an end": START + b"X: y\r\n" * MAX_HEADER_BYTES,
    "a chunk without a size": CHUNKED + b"\r\n<a/>\r\n0\r\n\r\n",
    "a negative chunk": CHUNKED + b"-4\r\n<a/>\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"3\r\n<a/>\r\n0\r\n\r\n",
    "no gzip": START + b"Content-Encoding: gzip\r\n\r\n<a/>",
    "half a gzip": START + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"<a/>")[:-9],
}
BROKEN_OFF = {
    "nothing": b"",
    "half of the headers": USUAL[:40],
    "half of the body": USUAL[:-2],
    "half of a chunk": CHUNKED + b"4\r\n<a",
    "no last chunk": CHUNKED + b"4\r\n<a/>\r\n",
    "no end of the trailers": CHUNKED + b"4\r\n<a/>\r\n0\r\nX: y\r\n",
}


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair(socket.AF_UNIX)
    here.settimeout(5)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
    with here, there:
        yield here, there


def send(there: socket.socket, data: bytes) -> None:
    there.sendall(data)
    there.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("form", READABLE)
def test_what_is_http_is_read_exactly(pair: Pair, form: str) -> None:
    here, there = pair
    send(there, READABLE[form])
    answer = Answer(here)
    assert (answer.status, answer.header("CONTENT-type")) == (200, "application/xml; charset=utf-8")
    assert answer.header("Retry-After") is None
    assert b"".join(answer.pieces()) == b"<a/>"
    assert answer.is_complete


@pytest.mark.parametrize("form", READABLE)
def test_it_may_arrive_byte_by_byte(pair: Pair, form: str) -> None:
    class OneByte(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            return super().recv(1, flags)

    here, there = pair
    send(there, READABLE[form])
    with OneByte(fileno=here.detach()) as slow:
        assert b"".join(Answer(slow).pieces()) == b"<a/>"


@pytest.mark.parametrize("form", MALFORMED)
def test_what_is_not_http_is_an_error(pair: Pair, form: str) -> None:
    here, there = pair
    send(there, MALFORMED[form])
    with pytest.raises(MalformedAnswer):
        list(Answer(here).pieces())


@pytest.mark.parametrize("form", BROKEN_OFF)
def test_an_answer_that_breaks_off_is_an_error(pair: Pair, form: str) -> None:
    here, there = pair
    send(there, BROKEN_OFF[form])
    with pytest.raises((http.client.IncompleteRead, http.client.RemoteDisconnected)):
        list(Answer(here).pieces())


@pytest.mark.parametrize(
    ("data", "is_usable"),
    [
        (USUAL, True),
        (READABLE["one chunk"], True),
        (READABLE["chunks with extensions and trailers"], True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (USUAL.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: Keep-Alive\r\n\r\n"), True),
        (USUAL.replace(b"1.1", b"1.0"), False),
        (USUAL.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"), False),
        (READABLE["no length"], False),
        (USUAL + b"more", False),
        (READABLE["one chunk"] + b"more", False),
    ],
)
def test_a_connection_is_usable_after_a_whole_answer_that_nothing_follows(
    pair: Pair, data: bytes, is_usable: bool
) -> None:
    here, there = pair
    send(there, data)
    answer = Answer(here)
    list(answer.pieces())
    assert answer.leaves_connection_usable is is_usable


def test_a_connection_is_not_usable_before_the_whole_answer_was_read(pair: Pair) -> None:
    here, there = pair
    send(there, USUAL)
    answer = Answer(here)
    assert not answer.leaves_connection_usable
    next(answer.pieces())
    assert not answer.leaves_connection_usable


def test_a_small_body_that_becomes_large_arrives_in_bounded_pieces(pair: Pair) -> None:
    here, there = pair
    send(there, START + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(64 << 20)))
    sizes = [len(piece) for piece in Answer(here).pieces()]
    assert (sum(sizes), max(sizes)) == (64 << 20, PIECE_BYTES)


def test_a_gateway_that_sends_nothing_is_waited_for_as_long_as_the_socket_allows(pair: Pair) -> None:
    here, _ = pair
    here.settimeout(0.05)
    with pytest.raises(TimeoutError):
        Answer(here)
