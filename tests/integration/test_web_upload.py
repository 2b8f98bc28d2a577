"""Uploads at their limits: as large as allowed and larger, cut off, slow, and at constant memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.conftest import Environment, Web
from tests.integration.conftest import Place
from tests.jobs import Conn, claim, complete, one
from tests.waiting import WAIT_SECONDS, eventually
from tests.web_client import PDF, Site, Visitor, error_of

STALLED, UPLOADS = 100, 40  # clients
LIMIT = 1_000_000  # of the shared server
AT_ONCE_SECONDS = 15  # before a stalled client is cut off: that takes SOCKET_TIMEOUT_SECONDS, 20
HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n'
TAIL = b"\r\n--x--\r\n"


def dial(site: Site) -> socket.socket:
    where = urlsplit(site.url)
    return socket.create_connection((where.hostname or "", where.port or 0), timeout=WAIT_SECONDS)


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
    eventually(lambda: is_clean(place), what="no temporary file is left")


def test_many_uploads_that_end_together_on_a_slow_disk_are_all_taken_and_hold_nobody_up(slow_disk: Site) -> None:
    """They wait for the disk, and for each other's connections to the database."""
    with ThreadPoolExecutor(UPLOADS) as clients:
        answers = [clients.submit(slow_disk.visitor().submit, PDF + uuid4().hex.encode()) for _ in range(UPLOADS)]
        while not all(answer.done() for answer in answers):
            assert slow_disk.visitor().get("/health", timeout=AT_ONCE_SECONDS).status_code == 200
            wait(answers, timeout=0.1)
    assert [answer.result().status_code for answer in answers] == [201] * UPLOADS


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
    eventually(lambda: is_clean(place), what="no temporary file is left")
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


def test_clients_that_say_nothing_or_little_hold_nobody_up_for_long(short_timeouts: Place) -> None:
    before = one(short_timeouts.conn, "SELECT count(*) FROM jobs")
    starts = [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        head(10_000)[:-10],
        head(10_000),
        head(500_000) + HEAD,
    ]
    lines = [dial(short_timeouts.site) for _ in range(STALLED)]
    try:
        for number, line in enumerate(lines):
            line.sendall(starts[number % len(starts)])
        assert short_timeouts.site.visitor().get("/api/jobs", timeout=AT_ONCE_SECONDS).status_code == 200
    finally:
        for line in lines:
            line.close()
    assert one(short_timeouts.conn, "SELECT count(*) FROM jobs") == before


def test_a_client_that_drips_its_upload_is_told_and_cut_off(short_timeouts: Place) -> None:
    with dial(short_timeouts.site) as line:
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


def test_who_announces_much_and_sends_little_is_cut_off_as_soon(short_timeouts: Place) -> None:
    """By what comes, not by what is announced: else forty megabytes would be waited for."""
    with dial(short_timeouts.site) as line:
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


def test_an_upload_that_goes_on_has_the_time_that_it_needs(short_timeouts: Place) -> None:
    """Here two seconds, and another one for every megabyte."""
    size = 4_000_000
    with dial(short_timeouts.site) as line:
        line.sendall(head(len(HEAD) + len(PDF) + size + len(TAIL)) + HEAD + PDF)
        began = time.monotonic()
        for sent in range(40):
            eventually(lambda sent=sent: time.monotonic() - began > sent * 0.075)  # type: ignore[misc]
            line.sendall(b"%" * (size // 40))
        line.sendall(TAIL)
        assert heard(line).startswith(b"HTTP/1.1 201 ")


def test_uploads_that_stall_keep_nobody_waiting(place: Place) -> None:
    """Nothing comes any more after a third of each."""
    site = place.site
    lines = [dial(site) for _ in range(STALLED)]
    try:
        for line in lines:
            line.sendall(head(300_000) + HEAD + PDF.ljust(100_000, b"%"))
        for _ in range(5):
            assert site.visitor().get("/api/jobs", timeout=AT_ONCE_SECONDS).status_code == 200
            files = {"file": ("a.pdf", PDF + uuid4().hex.encode())}
            assert site.visitor().post("/api/jobs", files=files, timeout=AT_ONCE_SECONDS).status_code == 201
    finally:
        for line in lines:
            line.close()
        eventually(lambda: is_clean(place), what="no temporary file is left")


def completed(place: Place, visitor: Visitor, size: int) -> str:
    """The request for a result of so many bytes."""
    job_id = visitor.submitted()
    place.complete(job_id, b"<x/>".ljust(size))
    return f"GET /api/jobs/{job_id}/download HTTP/1.1\r\nHost: x\r\nCookie: owner_session_id={visitor.owner}\r\n\r\n"


def test_readers_that_stop_in_the_middle_of_a_download_keep_nobody_waiting(place: Place) -> None:
    visitor = place.site.visitor()
    ask = completed(place, visitor, 20_000_000)
    lines = [dial(place.site) for _ in range(STALLED)]
    try:
        for line in lines:
            line.sendall(ask.encode())
        for line in lines[:20]:
            assert heard(line)  # it is being served, and takes no more
        for _ in range(5):
            assert visitor.get("/api/jobs", timeout=AT_ONCE_SECONDS).status_code == 200
    finally:
        for line in lines:
            line.close()


def test_a_client_that_takes_nothing_of_its_download_is_cut_off(short_timeouts: Place) -> None:
    """The log has a line of it, and no traceback: nothing is wrong here."""
    ask = completed(short_timeouts, short_timeouts.site.visitor(), 50_000_000)
    with dial(short_timeouts.site) as line:
        line.sendall(ask.encode())
        assert heard(line)
        told = "A client stopped reading its answer; its connection is closed"
        short_timeouts.site.process.wait_for_event("web", what=told)
        taken = sum(len(piece) for piece in iter(partial(line.recv, 1 << 20), b""))
    assert taken < 50_000_000
    assert short_timeouts.site.process.events("web_error") == []


def test_a_download_that_is_taken_slowly_is_not_cut_off(short_timeouts: Place) -> None:
    """Each piece of it may take two seconds here, and all of them together much longer."""
    size = 10_000_000
    ask = completed(short_timeouts, short_timeouts.site.visitor(), size)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        line.settimeout(WAIT_SECONDS)
        line.connect(dial(short_timeouts.site).getpeername())
        line.sendall(ask.encode())
        began, taken = time.monotonic(), 0
        while taken < size and (piece := line.recv(100_000)):
            taken += len(piece)
            eventually(lambda taken=taken: time.monotonic() - began > 4 * taken / size)  # type: ignore[misc]
    assert taken >= size


def test_chunks_that_are_malformed_are_refused_and_end_the_connection(place: Place) -> None:
    with dial(place.site) as line:
        line.sendall(head() + b"5\r\nabcdefgh\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b"".join(iter(partial(line.recv, 65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b'"BAD_REQUEST"' in answer
