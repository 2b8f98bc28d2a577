"""Owns the promises of the short way to an answer: it takes the usual one, and leaves no trace on any other."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest
from convertq.worker.plain_answer import take_plain_answer

Pair = tuple[socket.socket, socket.socket]
USUAL = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml; charset=utf-8\r\nContent-Length: 4\r\n\r\n<a/>"
OTHERS = {
    "another status": USUAL.replace(b"200 OK", b"503 Service Unavailable"),
    "an interim answer first": b"HTTP/1.1 100 Continue\r\n\r\n" + USUAL,
    "HTTP/1.0": USUAL.replace(b"1.1", b"1.0"),
    "no length": USUAL.replace(b"Content-Length: 4", b"X: 4"),
    "a negative length": USUAL.replace(b": 4", b": -4"),
    "a length twice": USUAL.replace(b"Content-Length: 4", b"Content-Length: 4\r\ncontent-length: 9"),
    "chunks": USUAL.replace(b"Content-Length: 4", b"Content-Length: 4\r\nTransfer-Encoding: chunked"),
    "compressed": USUAL.replace(b"Content-Length: 4", b"Content-Length: 4\r\nContent-Encoding: gzip"),
    "hangs up afterwards": USUAL.replace(b"Content-Length: 4", b"Content-Length: 4\r\nConnection: Close"),
    "a folded line": USUAL.replace(b"; charset", b";\r\n charset"),
    "a line without a name": USUAL.replace(b"Content-Type", b""),
    "a byte that has no place there": USUAL.replace(b"utf-8", b"utf-8\x00"),
    "half a head": USUAL[:40],
    "no HTTP": b"<a/>",
    "nothing": b"",
}


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair(socket.AF_UNIX)
    here.settimeout(5)
    with here, there:
        yield here, there


def send(there: socket.socket, data: bytes) -> None:
    there.sendall(data)
    there.shutdown(socket.SHUT_WR)


def test_the_usual_answer_is_taken(pair: Pair) -> None:
    here, there = pair
    send(there, USUAL + b"more")
    answer = take_plain_answer(here)
    assert answer
    assert (answer.status, answer.header("CONTENT-type")) == (200, "application/xml; charset=utf-8")
    assert answer.header("Retry-After") is None
    assert (answer.read(3), answer.missing, answer.read(100), answer.missing, answer.read(1)) == (
        b"<a/",
        1,
        b">",
        0,
        b"",
    )
    assert here.recv(10) == b"more", "what is behind it is nobody's answer"


def test_an_answer_that_breaks_off_is_an_error(pair: Pair) -> None:
    here, there = pair
    send(there, USUAL[:-2])
    answer = take_plain_answer(here)
    assert answer
    assert answer.read(100) == b"<a"
    with pytest.raises(http.client.IncompleteRead):
        answer.read(100)


@pytest.mark.parametrize("form", OTHERS)
def test_any_other_is_left_where_it_is(pair: Pair, form: str) -> None:
    here, there = pair
    send(there, OTHERS[form])
    assert take_plain_answer(here) is None
    assert here.recv(1000) == OTHERS[form]


def test_a_gateway_that_says_nothing_is_waited_for_as_long_as_the_socket_says(pair: Pair) -> None:
    here, _ = pair
    here.settimeout(0.05)
    with pytest.raises(TimeoutError):
        take_plain_answer(here)
