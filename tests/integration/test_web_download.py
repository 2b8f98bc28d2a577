"""The download: the result byte for byte, in part or whole, under a safe name, counted, while it is kept."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tests.integration.conftest import Place
from tests.jobs import events_of, insert_job, row_of
from tests.web_client import PDF, Visitor, error_of

XML = "<?xml version='1.0'?>\n<fatura>é</fatura>\n".encode() + b"<!-- -->" * 20_000


@pytest.fixture
def job_id(place: Place, visitor: Visitor) -> UUID:
    job_id = visitor.submitted(PDF + uuid4().hex.encode())
    place.complete(job_id, XML)
    return job_id


def downloads(place: Place, job_id: UUID) -> int:
    return int(row_of(place.conn, job_id)["download_count"])


def test_the_result_comes_as_it_is_and_is_counted(place: Place, visitor: Visitor, job_id: UUID) -> None:
    answer = visitor.get(f"/api/jobs/{job_id}/download")
    assert (answer.status_code, answer.content) == (200, XML)
    assert answer.headers["Content-Type"].startswith("application/xml")
    assert answer.headers["Content-Disposition"] == "attachment; filename=invoice.xml"
    assert answer.headers["Content-Length"] == str(len(XML))
    assert downloads(place, job_id) == 1
    assert row_of(place.conn, job_id)["first_downloaded_at"] is not None
    assert events_of(place.conn, job_id)[-1] == "downloaded"


def test_a_head_tells_of_it_and_counts_nothing(place: Place, visitor: Visitor, job_id: UUID) -> None:
    answer = visitor.head(f"/api/jobs/{job_id}/download")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["Content-Length"] == str(len(XML))
    assert answer.headers["Accept-Ranges"] == "bytes"
    assert downloads(place, job_id) == 0


def test_an_interrupted_download_goes_on_and_counts_once(place: Place, visitor: Visitor, job_id: UUID) -> None:
    route = f"/api/jobs/{job_id}/download"
    first = visitor.get(route, headers={"Range": "bytes=0-999"})
    rest = visitor.get(route, headers={"Range": "bytes=1000-", "If-Range": first.headers["ETag"]})
    last = visitor.get(route, headers={"Range": "bytes=-10"})
    assert (first.status_code, rest.status_code, last.status_code) == (206, 206, 206)
    assert first.content + rest.content == XML
    assert rest.headers["Content-Range"] == f"bytes 1000-{len(XML) - 1}/{len(XML)}"
    assert last.content == XML[-10:]
    assert downloads(place, job_id) == 1
    changed = visitor.get(route, headers={"Range": "bytes=1000-", "If-Range": '"of another file"'})
    assert (changed.status_code, changed.content) == (200, XML)


def test_a_range_that_it_has_not_is_refused(visitor: Visitor, job_id: UUID) -> None:
    answer = visitor.get(f"/api/jobs/{job_id}/download", headers={"Range": f"bytes={len(XML)}-"})
    assert error_of(answer)[0] == 416
    assert answer.headers["Content-Range"] == f"bytes */{len(XML)}"


@pytest.mark.parametrize(
    "nonsense",
    [
        "bytes=a-b",
        "bytes=",
        "bytes",
        "bytes=5-2",
        "bytes=--1",
        "bytes=-",
        "items=0-1",
        "bytes=0-1,3-4",
        "bytes=0;x",
        "",
    ],
)
def test_a_range_that_says_nothing_is_as_none(visitor: Visitor, job_id: UUID, nonsense: str) -> None:
    answer = visitor.get(f"/api/jobs/{job_id}/download", headers={"Range": nonsense})
    assert (answer.status_code, answer.content) == (200, XML)


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        (f"bytes=-{len(XML) + 1}", 0, len(XML) - 1),  # as much of the end as there is: all of it
        ("bytes=-" + "9" * 5000, 0, len(XML) - 1),
        ("bytes=5-" + "9" * 5000, 5, len(XML) - 1),
        (f"bytes={len(XML) - 1}-{len(XML) + 5}", len(XML) - 1, len(XML) - 1),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_range_ends_with_the_file(visitor: Visitor, job_id: UUID, asked: str, first: int, last: int) -> None:
    for method in ("GET", "HEAD"):
        answer = visitor.request(method, f"/api/jobs/{job_id}/download", headers={"Range": asked})
        assert answer.status_code == 206
        assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(XML)}"
        assert answer.content == (XML[first : last + 1] if method == "GET" else b"")


@pytest.mark.parametrize("nothing", ["bytes=-0", "bytes=" + "9" * 5000 + "-"], ids=len)
def test_a_range_of_nothing_is_refused(visitor: Visitor, job_id: UUID, nothing: str) -> None:
    assert error_of(visitor.get(f"/api/jobs/{job_id}/download", headers={"Range": nothing}))[0] == 416


def test_who_wants_another_version_gets_none(place: Place, visitor: Visitor, job_id: UUID) -> None:
    for route in (f"/api/jobs/{job_id}/download", "/api/jobs"):
        assert error_of(visitor.get(route, headers={"If-Match": '"another"'})) == (412, "BAD_REQUEST")
        etag = visitor.head(route).headers["ETag"]
        for right in (etag, f'"another", {etag}', "*"):
            assert visitor.get(route, headers={"If-Match": right}).status_code == 200
    assert downloads(place, job_id) == 3


def test_who_has_it_already_is_told_so(place: Place, visitor: Visitor, job_id: UUID) -> None:
    route = f"/api/jobs/{job_id}/download"
    etag = visitor.head(route).headers["ETag"]
    assert visitor.get(route, headers={"If-None-Match": etag}).status_code == 304
    assert downloads(place, job_id) == 0


def test_what_is_not_converted_yet_is_not_ready(visitor: Visitor) -> None:
    job_id = visitor.submitted(PDF + uuid4().hex.encode())
    assert error_of(visitor.get(f"/api/jobs/{job_id}/download")) == (409, "NOT_READY")
    assert visitor.get(f"/api/jobs/{job_id}").json()["can_download"] is False


def test_what_is_no_longer_kept_has_expired(place: Place, visitor: Visitor, job_id: UUID) -> None:
    route = f"/api/jobs/{job_id}/download"
    (place.dirs.results / f"{job_id}.xml").unlink()
    assert error_of(visitor.get(route)) == (410, "EXPIRED")
    place.conn.execute("UPDATE jobs SET result_path = NULL WHERE id = %s", [job_id])
    assert error_of(visitor.get(route)) == (410, "EXPIRED")
    shown = visitor.get(f"/api/jobs/{job_id}").json()
    assert (shown["status"], shown["can_download"]) == ("complete", False)
    assert shown["why"] == "Converted, but the result has expired: upload the file again"
    assert downloads(place, job_id) == 0


def test_a_symlink_in_the_results_is_not_followed(place: Place, visitor: Visitor) -> None:
    job_id = insert_job(place.conn, "complete", owner_session_id=visitor.owner, result_path="/etc/hostname")
    (place.dirs.results / f"{job_id}.xml").symlink_to("/etc/hostname")
    assert error_of(visitor.get(f"/api/jobs/{job_id}/download")) == (410, "EXPIRED")


@pytest.mark.parametrize(
    ("original", "header"),
    [
        ("fatura.PDF", "attachment; filename=fatura.xml"),
        ("my invoice (2).pdf", 'attachment; filename="my invoice (2).xml"'),
        ("../../etc/passwd", "attachment; filename=etcpasswd.xml"),
        ('a"; x="\r\nSet-Cookie: a=b\\', 'attachment; filename="a xSet-Cookie ab.xml"'),
        ("çã.pdf", "attachment; filename=ca.xml; filename*=UTF-8''%C3%A7%C3%A3.xml"),
        ("発票.pdf", "attachment; filename=result.xml; filename*=UTF-8''%E7%99%BA%E7%A5%A8.xml"),
        ("...", "attachment; filename=result.xml"),
        (None, "attachment; filename=result.xml"),
        ("x" * 300, f"attachment; filename={'x' * 100}.xml"),
    ],
)
def test_the_name_is_safe(place: Place, visitor: Visitor, original: str | None, header: str) -> None:
    job_id = insert_job(
        place.conn, "complete", owner_session_id=visitor.owner, result_path="x", original_filename=original
    )
    (place.dirs.results / f"{job_id}.xml").write_text("<x/>")
    assert visitor.head(f"/api/jobs/{job_id}/download").headers["Content-Disposition"] == header
