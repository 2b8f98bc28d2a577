"""What comes before the application: connections that say nothing, and requests that are no HTTP."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from convertq.web.security_headers import HEADERS

from tests.integration.conftest import OpenPlace, Place
from tests.waiting import WAIT_SECONDS, eventually
from tests.web_client import TOKEN, Site

CLIENTS = 150
AT_ONCE_SECONDS = 30.0  # before a silent client is cut off: that takes KEEP_ALIVE_SECONDS, here 60


@pytest.fixture(scope="module")
def patient(open_place: OpenPlace) -> Iterator[Place]:
    """A web server that tells who is kept waiting from a busy machine."""
    program = (sys.executable, "-m", "tests.patient_web")
    with open_place(program, PYTHONPATH=str(Path(__file__).parents[2])) as place:
        yield place


def dial(site: Site) -> socket.socket:
    where = urlsplit(site.url)
    return socket.create_connection((where.hostname or "", where.port or 0), timeout=WAIT_SECONDS)


def heard(site: Site, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """All that comes back, to the end of the connection."""
    answer = b""
    with dial(site) as line:
        line.sendall(sent)
        while piece := line.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


UNREADABLE = {
    "no request": (b"GARBAGE\r\n\r\n", 400),
    "no such version": (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 400),
    "a long address": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "a long header": (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
    "many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 200 + b"\r\n", 431),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "a header without a colon": (b"GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400),
    "two lengths": (
        b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "less than no body": (b"POST /api/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400),
    "a number that is none": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
    "another expectation": (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n", 417),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_as_everything_else_is(place: Place, name: str) -> None:
    sent, code = UNREADABLE[name]
    status, headers, body = heard(place.site, sent)
    assert status == code
    assert headers.items() >= {**HEADERS, "Content-Type": "application/json", "Cache-Control": "no-store"}.items()
    assert int(headers["Content-Length"]) == len(body)
    error = json.loads(body)["error"]
    assert (set(error), error["code"]) == ({"code", "message"}, "BAD_REQUEST")


def test_of_what_cannot_be_read_nothing_is_logged_but_the_kind_of_mistake(place: Place) -> None:
    for line in (f"Authorization Bearer {TOKEN}", f"Authorization : Bearer {TOKEN}", f"X: a\r\n {TOKEN}"):
        assert heard(place.site, f"GET / HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n".encode())[0] == 400
    assert heard(place.site, f"GET /?{TOKEN} HTTP/x\r\n\r\n".encode())[0] == 400
    eventually(lambda: len(place.site.process.events("web_error")) >= 4, what="four lines")
    assert TOKEN not in place.site.process.tail(10_000)


@pytest.mark.parametrize("header", ["SCRIPT_NAME", "PATH_INFO"])
def test_a_header_cannot_name_another_path_than_the_address(place: Place, header: str) -> None:
    asked = f"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}: /api/admin/stats\r\n\r\n"
    status, _, body = heard(place.site, asked.encode())
    assert (status, json.loads(body)) == (200, {"status": "alive"})


def test_those_who_say_nothing_keep_nobody_waiting(patient: Place) -> None:
    with ExitStack() as open_lines:
        for _ in range(CLIENTS):
            open_lines.enter_context(dial(patient.site))
        assert patient.site.visitor().get("/health", timeout=AT_ONCE_SECONDS).status_code == 200


WORDS = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_those_who_say_a_little_at_a_time_keep_nobody_waiting_and_are_answered_in_the_end(patient: Place) -> None:
    with ExitStack() as open_lines:
        lines = [open_lines.enter_context(dial(patient.site)) for _ in range(CLIENTS)]
        for start, end in ((0, 1), (1, 20), (20, len(WORDS) - 1)):
            for line in lines:
                line.sendall(WORDS[start:end])
            assert patient.site.visitor().get("/health", timeout=AT_ONCE_SECONDS).status_code == 200
        for line in lines:
            line.sendall(WORDS[-1:])
        for line in lines:
            assert line.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_who_stops_in_the_middle_of_a_head_is_let_go_at_once(patient: Place) -> None:
    with dial(patient.site) as line:
        line.sendall(WORDS[:20])
        patient.site.visitor().get("/health")  # what was said so far has been looked at
        line.shutdown(socket.SHUT_WR)
        line.settimeout(AT_ONCE_SECONDS)
        assert line.recv(1) == b""


def test_on_a_connection_that_is_kept_a_head_may_come_in_pieces_too(patient: Place) -> None:
    kept = WORDS.replace(b"Connection: close", b"Accept: */*")
    with dial(patient.site) as line:
        for _ in range(3):
            for at in range(0, len(kept), 9):
                line.sendall(kept[at : at + 9])
                patient.site.visitor().get("/health")  # and meanwhile others are served
            answer = b""
            while b'"alive"' not in answer:
                answer += line.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")


def test_who_has_its_answer_and_does_not_hang_up_keeps_nobody_waiting(patient: Place) -> None:
    with ExitStack() as open_lines:
        for line in [open_lines.enter_context(dial(patient.site)) for _ in range(CLIENTS)]:
            line.sendall(WORDS)
        assert patient.site.visitor().get("/health", timeout=AT_ONCE_SECONDS).status_code == 200


def test_when_more_come_than_there_is_room_for_the_silent_ones_go_first(short_timeouts: Place) -> None:
    """There is room for a hundred here."""
    with ExitStack() as open_lines:
        lines = [open_lines.enter_context(dial(short_timeouts.site)) for _ in range(150)]
        assert short_timeouts.site.visitor().get("/health", timeout=AT_ONCE_SECONDS).status_code == 200
        lines[0].settimeout(WAIT_SECONDS)
        assert lines[0].recv(1) == b""
