"""Owns uploads at their limits: as large as allowed and larger, cut off, slow, and at constant memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from convertq.web.server import THREADS

from tests.conftest import Environment, Web
from tests.integration.conftest import Place
from tests.jobs import Conn, claim, complete, one
from tests.waiting import eventually
from tests.web_client import PDF, Site, Visitor, error_of

LIMIT = 1_000_000  # of the shared server
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
TAIL = b"\r\n--x--\r\n"


def dial(site: Site) -> socket.socket:
    where = urlsplit(site.url)
    return socket.create_connection((where.hostname or "", where.port or 0), timeout=30)


def head(length: int | None = None, cookie: str = "") -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"POST /api/jobs HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\n{size}\r\n"
        f"Cookie: owner_session_id={cookie or uuid4()}\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
    ).encode()


def heard(line: socket.socket) -> bytes:
    """What comes next, at once or after a while."""
    return line.recv(65536)


def is_clean(place: Place) -> bool:
    return not list(place.dirs.uploads.glob(".*"))


# -- size --


def test_a_file_of_exactly_the_limit_is_taken(visitor: Visitor) -> None:
    content = PDF.ljust(LIMIT, b"%")
    assert visitor.submit(content).status_code == 201


def test_one_byte_more_is_too_large_and_shown_so(place: Place, visitor: Visitor) -> None:
    assert error_of(visitor.submit(PDF.ljust(LIMIT + 1, b"%"))) == (413, "TOO_LARGE")
    [job] = visitor.get("/api/jobs").json()["jobs"]
    assert (job["status"], job["error_code"], job["bytes"]) == ("failed", "TOO_LARGE", LIMIT + 1)
    assert is_clean(place)


def test_a_declared_size_is_refused_before_a_byte_of_the_file_is_sent(place: Place) -> None:
    with dial(place.site) as line:
        line.sendall(head(LIMIT * 2))
        assert heard(line).startswith(b"HTTP/1.1 413 ")


def test_what_was_not_declared_is_counted(place: Place, visitor: Visitor) -> None:
    def body() -> Iterator[bytes]:
        yield HEAD + PDF
        for _ in range(100):
            yield b"%" * 65536
        yield TAIL

    answer = visitor.post("/api/jobs", data=body(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert error_of(answer) == (413, "TOO_LARGE")
    assert visitor.get("/api/jobs").json()["jobs"] == []
    eventually(lambda: is_clean(place), what="no temp file is left")


def test_an_upload_in_chunks_is_taken(visitor: Visitor) -> None:
    body = iter([HEAD, PDF, uuid4().hex.encode(), TAIL])
    answer = visitor.post("/api/jobs", data=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert answer.status_code == 201


def test_a_large_field_or_many_parts_are_refused(visitor: Visitor) -> None:
    assert visitor.submit(PDF, mapping="x" * 2000).status_code == 400
    many = [(f"field{number}", (None, b"x")) for number in range(30)]
    assert visitor.post("/api/jobs", files=many).status_code == 400


# -- an upload that ends early --


@pytest.mark.parametrize("sent", [b"", HEAD[:20], HEAD + PDF, HEAD + PDF.ljust(200_000, b"%")], ids=len)
def test_a_client_that_goes_away_leaves_nothing_behind(place: Place, sent: bytes) -> None:
    owner = str(uuid4())
    with dial(place.site) as line:
        line.sendall(head(500_000, owner) + sent)
        if len(sent) > 100_000:
            eventually(lambda: not is_clean(place), what="the file is being written")
    eventually(lambda: is_clean(place), what="no temp file is left")
    assert one(place.conn, "SELECT count(*) FROM jobs WHERE owner_session_id = %s", owner)["count"] == 0


def test_a_directory_that_cannot_be_written_is_said_and_nothing_is_recorded(web: Web, conn: Conn) -> None:
    site = web(UPLOADS_DIR="/proc/self/fdinfo")
    visitor = site.visitor()
    assert error_of(visitor.submit()) == (507, "IO_ERROR")
    assert one(conn, "SELECT count(*) FROM jobs")["count"] == 0


# -- memory --


def peak(pid: int) -> int:
    """Bytes, the most that it ever had in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_memory_does_not_grow_with_an_upload_or_a_download(web: Web, conn: Conn, environment: Environment) -> None:
    site = web(MAX_UPLOAD_BYTES=200_000_000)
    visitor = site.visitor()
    visitor.submitted()
    [process] = site.process.children()
    before = peak(process)
    size = 100_000_000

    def body() -> Iterator[bytes]:
        yield HEAD + PDF
        for _ in range(size // 1_000_000):
            yield b"%" * 1_000_000
        yield TAIL

    answer = visitor.post("/api/jobs", data=body(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert answer.status_code == 201, answer.text
    assert peak(process) - before < 15_000_000
    job_id = answer.json()["id"]
    given = environment()
    Path(given["UPLOADS_DIR"], f"{job_id}.pdf").rename(Path(given["RESULTS_DIR"], f"{job_id}.xml"))
    conn.execute("UPDATE jobs SET priority = 1 WHERE id = %s", [job_id])
    assert complete(conn, claim(conn))
    with visitor.get(f"/api/jobs/{job_id}/download", stream=True) as download:
        assert sum(map(len, download.iter_content(1 << 20))) > size
    assert peak(process) - before < 15_000_000


# -- slow clients --


def test_clients_that_say_nothing_or_little_hold_nobody_up_for_long(impatient: Site, conn: Conn) -> None:
    starts = [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        head(10_000)[:-10],
        head(10_000),
        head(500_000) + HEAD,
    ]
    lines = [dial(impatient) for _ in range(THREADS + 16)]
    try:
        for number, line in enumerate(lines):
            line.sendall(starts[number % len(starts)])
        assert impatient.visitor().get("/api/jobs", timeout=20).status_code == 200
    finally:
        for line in lines:
            line.close()
    assert one(conn, "SELECT count(*) FROM jobs")["count"] == 0


def test_a_client_that_drips_its_upload_is_told_and_cut_off(impatient: Site) -> None:
    with dial(impatient) as line:
        line.sendall(head(500_000) + HEAD + PDF)
        line.settimeout(0.2)
        answer = b""
        for _ in range(100):
            try:
                answer += heard(line)
                break
            except TimeoutError:
                line.sendall(b"%")
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_who_announces_much_and_sends_little_is_cut_off_as_soon(impatient: Site) -> None:
    """By what comes, not by what is announced: else forty megabytes would be waited for."""
    with dial(impatient) as line:
        line.sendall(head(40_000_000) + HEAD + PDF)
        line.settimeout(0.2)
        answer = b""
        for _ in range(50):
            try:
                answer += heard(line)
                break
            except TimeoutError:
                line.sendall(b"%")
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_an_upload_that_goes_on_has_the_time_that_it_needs(impatient: Site) -> None:
    """Here a second, and another for every megabyte."""
    size = 4_000_000
    with dial(impatient) as line:
        line.sendall(head(len(HEAD) + len(PDF) + size + len(TAIL)) + HEAD + PDF)
        began = time.monotonic()
        for sent in range(40):
            eventually(lambda sent=sent: time.monotonic() - began > sent * 0.05)  # type: ignore[misc]
            line.sendall(b"%" * (size // 40))
        line.sendall(TAIL)
        assert heard(line).startswith(b"HTTP/1.1 201 ")


def test_a_client_that_takes_nothing_of_its_download_is_cut_off(
    impatient: Site, conn: Conn, environment: Environment
) -> None:
    visitor = impatient.visitor()
    job_id = visitor.submitted()
    Path(environment()["RESULTS_DIR"], f"{job_id}.xml").write_bytes(b"<x/>".ljust(50_000_000))
    assert complete(conn, claim(conn))
    lines = [dial(impatient) for _ in range(THREADS + 8)]
    ask = f"GET /api/jobs/{job_id}/download HTTP/1.1\r\nHost: x\r\nCookie: owner_session_id={visitor.owner}\r\n\r\n"
    try:
        for line in lines:
            line.sendall(ask.encode())
        for line in lines[:THREADS]:
            assert heard(line)  # it is being served, and takes no more
        assert visitor.get("/api/status", timeout=20).status_code == 200
    finally:
        for line in lines:
            line.close()
