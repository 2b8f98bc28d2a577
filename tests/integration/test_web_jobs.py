"""The visitor's routes: submitting, listing, looking, retrying, each with the answers that are promised."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from convertq.queue.errors import Code, Failure

from tests.integration.conftest import Place
from tests.jobs import (
    HOLDER,
    SERVER,
    events_of,
    fail,
    insert_job,
    one,
    queue,
    register_server,
    retry_later,
    row_of,
    run,
    set_breaker,
    set_status,
    status_of,
    together,
)
from tests.waiting import eventually
from tests.web_client import PDF, Visitor, error_of

FIELDS = {
    "id", "status", "original_filename", "bytes", "mapping", "priority", "attempt_count", "error_code", "error_message",
    "dead_letter", "retry_after", "not_before", "deadline", "created_at", "queued_at", "started_at", "completed_at",
    "failed_at", "cancelled_at", "updated_at", "progress", "why", "can_retry", "can_cancel", "can_download", "display",
    "estimate",
}  # fmt: skip


def a_pdf() -> bytes:
    """No two alike."""
    return PDF + uuid4().bytes.hex().encode()


# -- submitting --


def test_an_upload_becomes_a_queued_job_with_its_file_in_place(place: Place, visitor: Visitor) -> None:
    content = a_pdf()
    answer = visitor.submit(content, name="fatura.pdf", priority=5, pretty="0", mapping="text_v1")
    assert answer.status_code == 201
    job = answer.json()
    assert set(job) == FIELDS
    assert answer.headers["Location"] == f"/api/jobs/{job['id']}"
    row = row_of(place.conn, UUID(job["id"]))
    wanted = {"owner_session_id": visitor.owner, "status": "queued", "original_filename": "fatura.pdf", "priority": 5}
    assert row.items() >= {**wanted, "pretty": False, "mapping": "text_v1", "bytes": len(content)}.items()
    assert (place.dirs.uploads / f"{job['id']}.pdf").read_bytes() == content


def test_the_same_file_again_joins_its_job(visitor: Visitor) -> None:
    content = a_pdf()
    first = visitor.submit(content)
    again = visitor.submit(content)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


def test_two_visitors_with_the_same_file_have_a_job_each(place: Place) -> None:
    content = a_pdf()
    assert place.site.visitor().submitted(content) != place.site.visitor().submitted(content)


def test_a_failed_job_is_queued_again_by_its_file(place: Place, visitor: Visitor) -> None:
    content = a_pdf()
    job_id = visitor.submitted(content)
    assert fail(place.conn, place.claim(job_id))
    answer = visitor.submit(content)
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")


def test_what_is_no_pdf_is_refused_and_shown_as_refused(visitor: Visitor) -> None:
    assert error_of(visitor.submit(b"hello")) == (400, "NOT_PDF")
    [job] = visitor.get("/api/jobs").json()["jobs"]
    assert (job["status"], job["error_code"], job["can_retry"]) == ("failed", "NOT_PDF", False)


def test_an_empty_file_is_refused_and_not_recorded(visitor: Visitor) -> None:
    assert error_of(visitor.submit(b"")) == (400, "NOT_PDF")
    assert visitor.get("/api/jobs").json()["jobs"] == []


def test_an_unknown_mapping_is_refused_before_anything_is_kept(place: Place, visitor: Visitor) -> None:
    before = set(place.dirs.uploads.iterdir())
    assert error_of(visitor.submit(a_pdf(), mapping="nothing")) == (422, "UNKNOWN_MAPPING")
    assert visitor.get("/api/jobs").json()["jobs"] == []
    assert set(place.dirs.uploads.iterdir()) == before


@pytest.mark.parametrize(
    "fields", [{"priority": "high"}, {"priority": "101"}, {"priority": "2147483648"}, {"pretty": "x"}]
)
def test_a_field_that_cannot_be_is_refused(visitor: Visitor, fields: dict[str, str]) -> None:
    assert error_of(visitor.submit(a_pdf(), **fields)) == (400, "BAD_REQUEST")


def test_a_visitor_with_too_many_unfinished_jobs_must_wait(place: Place, visitor: Visitor) -> None:
    for _ in range(10):
        visitor.submitted(a_pdf())
    refused = visitor.submit(a_pdf())
    assert error_of(refused) == (429, "TOO_MANY")
    assert refused.headers["Retry-After"]
    assert place.site.visitor().submit(a_pdf()).status_code == 201
    [job] = visitor.get("/api/jobs", params={"limit": 1}).json()["jobs"]
    assert fail(place.conn, place.claim(UUID(job["id"])))
    assert visitor.submit(a_pdf()).status_code == 201


def test_of_many_uploads_at_once_no_more_are_taken_than_allowed(place: Place, visitor: Visitor) -> None:
    owner = visitor.owner

    def submit() -> int:
        mine = place.site.visitor()
        mine.cookies.set("owner_session_id", owner)
        return mine.submit(a_pdf()).status_code

    codes = together(*[submit] * 14)
    assert sorted(map(str, codes)) == ["201"] * 10 + ["429"] * 4
    assert one(place.conn, "SELECT count(*) FROM jobs WHERE owner_session_id = %s", owner)["count"] == 10


# -- looking --


def test_the_list_is_mine_newest_first_with_the_number_unfinished(place: Place, visitor: Visitor) -> None:
    place.site.visitor().submitted(a_pdf())
    jobs = [visitor.submitted(a_pdf()) for _ in range(3)]
    assert fail(place.conn, place.claim(jobs[0]))
    answer = visitor.get("/api/jobs").json()
    assert [job["id"] for job in answer["jobs"]] == [str(job_id) for job_id in reversed(jobs)]
    assert (answer["active"], answer["next"]) == (2, None)
    assert all(set(job) == FIELDS for job in answer["jobs"])
    failed = visitor.get("/api/jobs?status=failed&limit=&before=").json()
    assert [job["id"] for job in failed["jobs"]] == [str(jobs[0])]
    assert failed["active"] == 2


def pages(visitor: Visitor, **asked: Any) -> Iterator[list[str]]:
    before = None
    while True:
        answer = visitor.get("/api/jobs", params={**asked, "before": before}).json()
        yield [job["id"] for job in answer["jobs"]]
        if (before := answer["next"]) is None:
            return


def test_pages_follow_each_other_without_a_gap_though_jobs_are_as_old_as_each_other(
    place: Place, visitor: Visitor
) -> None:
    owner = visitor.owner
    for number in range(7):
        insert_job(place.conn, "complete", owner_session_id=owner, created_at=f"2026-01-01 12:00:0{number // 3}+00")
    found = list(pages(visitor, limit=2))
    assert [len(page) for page in found] == [2, 2, 2, 1]
    everything = [job["id"] for job in visitor.get("/api/jobs").json()["jobs"]]
    assert [job_id for page in found for job_id in page] == everything
    later = visitor.get("/api/jobs", params={"before": "2026-01-01T12:00:01+00:00"}).json()["jobs"]
    assert len(later) == 3


def test_a_page_that_has_not_changed_costs_a_few_bytes(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(a_pdf())
    first = visitor.get("/api/jobs")
    again = visitor.get("/api/jobs", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert fail(place.conn, place.claim(job_id))
    changed = visitor.get("/api/jobs", headers={"If-None-Match": first.headers["ETag"]})
    assert changed.json()["jobs"][0]["status"] == "failed"


def test_the_version_of_a_page_changes_with_all_that_it_tells(place: Place, visitor: Visitor) -> None:
    """Also with what is in none of its rows: the number unfinished, a file that is gone, the breaker."""
    job_id = visitor.submitted(a_pdf())
    place.complete(job_id)
    seen = {"complete": "", "queued": ""}

    def changed(status: str) -> bool:
        headers = {"If-None-Match": seen[status]} if seen[status] else {}
        answer = visitor.get(f"/api/jobs?status={status}", headers=headers)
        seen[status] = answer.headers["ETag"]
        return answer.status_code == 200

    assert changed("complete")
    assert not changed("complete")
    visitor.submitted(a_pdf())
    assert changed("complete"), "active has changed"
    (place.dirs.results / f"{job_id}.xml").unlink()
    assert changed("complete"), "it cannot be downloaded any more"
    assert changed("queued")
    set_breaker(place.conn, "open")
    assert changed("queued"), "it is held"
    set_breaker(place.conn, "closed")
    assert changed("queued")
    assert not changed("queued")


@pytest.mark.parametrize("query", ["status=lost", "limit=0", "limit=201", "limit=many", "before=yesterday", "before=0"])
def test_a_list_that_cannot_be_asked_for_is_refused(visitor: Visitor, query: str) -> None:
    assert error_of(visitor.get(f"/api/jobs?{query}")) == (400, "BAD_REQUEST")


def test_a_page_begins_only_behind_a_job_of_mine(place: Place, visitor: Visitor) -> None:
    other = place.site.visitor().submitted(a_pdf())
    assert error_of(visitor.get(f"/api/jobs?before={other}")) == (403, "FORBIDDEN")
    assert visitor.get(f"/api/jobs?before={uuid4()}").status_code == 404


def test_a_job_tells_what_happened_and_how_far_it_is(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(a_pdf())
    job = place.claim(job_id)
    assert queue(place.conn).report_progress(job, "converting", 40, 4, 10)
    shown = visitor.get(f"/api/jobs/{job_id}").json()
    assert (shown["status"], shown["why"]) == ("processing", "Being converted, attempt 1 of 3")
    assert shown["progress"]["percent"] == 40
    progress = visitor.get(f"/api/jobs/{job_id}/progress").json()
    assert progress == {"id": str(job_id), "status": "processing", "progress": shown["progress"]}
    events = visitor.get(f"/api/jobs/{job_id}/events").json()["events"]
    assert [event["event_type"] for event in events] == ["created", "queued", "processing"]
    assert events[2]["meta"] == {"attempt": 1}  # which worker it is, is nobody's business
    assert HOLDER not in visitor.get(f"/api/jobs/{job_id}").text
    assert fail(place.conn, job)


def test_a_waiting_job_says_why(place: Place, visitor: Visitor) -> None:
    def why(job_id: UUID) -> str:
        return str(visitor.get(f"/api/jobs/{job_id}").json()["why"])

    job_id = visitor.submitted(a_pdf())
    run(place.conn, "stop_server", server=SERVER)
    assert why(job_id) == "Waits: no converter is running just now"
    register_server(place.conn, "host:9:web")
    assert why(job_id) == "Waits for its turn"
    set_breaker(place.conn, "open")
    assert why(job_id) == "Converter busy — jobs will resume automatically"
    eventually(lambda: visitor.get("/api/status").json()["breaker"] == "open", what="the page says so")
    set_breaker(place.conn, "closed")
    place.conn.execute("DELETE FROM servers WHERE id = %s", [SERVER])
    assert queue(place.conn).requeue_job(place.claim(job_id), "busy", 60_000)
    assert why(job_id) == "Waits for attempt 1 of 3: the gateway was busy"
    assert visitor.get("/api/jobs").json()["jobs"][0]["why"] == why(job_id)
    place.conn.execute("UPDATE jobs SET retry_after = NULL WHERE id = %s", [job_id])
    assert retry_later(place.conn, place.claim(job_id))
    assert why(job_id) == "Waits for attempt 2 of 3: the gateway answered 503"


def test_a_file_that_could_not_be_read_has_two_attempts_in_every_sentence(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(a_pdf())
    failure = Failure(Code.IO_ERROR, "the source cannot be read: input/output error")
    assert retry_later(place.conn, place.claim(job_id), failure=failure)
    job = visitor.get(f"/api/jobs/{job_id}").json()
    assert job["why"] == "Waits for attempt 2 of 2: the source cannot be read: input/output error"
    assert job["display"]["until"] == job["retry_after"]
    place.conn.execute("UPDATE jobs SET retry_after = NULL WHERE id = %s", [job_id])
    place.claim(job_id)
    assert visitor.get("/api/jobs").json()["jobs"][0]["why"] == "Being converted, attempt 2 of 2"


def test_a_server_that_has_fallen_silent_is_no_running_converter(place: Place, visitor: Visitor) -> None:
    """A supervisor that was killed cannot say so."""
    job_id = visitor.submitted(a_pdf())
    place.conn.execute("DELETE FROM servers")  # the next claim registers its server again
    register_server(place.conn, "host:9:silent")
    place.conn.execute("UPDATE servers SET last_heartbeat_at = now() - interval '41 s'")
    told = "Waits: no converter is running just now"
    assert visitor.get(f"/api/jobs/{job_id}").json()["why"] == told
    assert visitor.get("/api/jobs").json()["jobs"][0]["why"] == told


def test_the_status_counts_the_queue_and_tells_nothing_else(place: Place, visitor: Visitor) -> None:
    status = visitor.get("/api/status").json()
    assert set(status) == {"breaker", "gateways", "queue_depth"}

    def is_true() -> bool:
        queued = one(place.conn, "SELECT count(*) FROM jobs WHERE status = 'queued'")["count"]
        return bool(visitor.get("/api/status").json()["queue_depth"] == queued)

    eventually(is_true, what="the number of queued jobs")
    place.site.visitor().submitted(a_pdf())
    eventually(is_true, what="the number of queued jobs after another one")


# -- retrying --


def test_a_failed_job_is_retried(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(a_pdf())
    assert fail(place.conn, place.claim(job_id), dead_letter=True)
    assert visitor.get(f"/api/jobs/{job_id}").json()["can_retry"] is True
    answer = visitor.post(f"/api/jobs/{job_id}/retry")
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert status_of(place.conn, job_id) == "queued"


def test_a_retry_beyond_the_limit_of_unfinished_jobs_is_refused(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(a_pdf())
    assert fail(place.conn, place.claim(job_id))
    for _ in range(10):
        visitor.submitted(a_pdf())
    refused = visitor.post(f"/api/jobs/{job_id}/retry")
    assert error_of(refused) == (429, "TOO_MANY")
    assert refused.headers["Retry-After"]
    assert status_of(place.conn, job_id) == "failed"
    assert events_of(place.conn, job_id)[-1] == "failed"
    [other] = visitor.get("/api/jobs", params={"limit": 1}).json()["jobs"]
    assert fail(place.conn, place.claim(UUID(other["id"])))
    assert visitor.post(f"/api/jobs/{job_id}/retry").status_code == 202


def test_of_many_retries_at_once_no_more_are_queued_than_allowed(place: Place, visitor: Visitor) -> None:
    owner = visitor.owner
    jobs = [visitor.submitted(a_pdf()) for _ in range(4)]
    for job_id in jobs:
        assert fail(place.conn, place.claim(job_id))
    for _ in range(8):
        visitor.submitted(a_pdf())

    def retry(job_id: UUID) -> int:
        mine = place.site.visitor()
        mine.cookies.set("owner_session_id", owner)
        return mine.post(f"/api/jobs/{job_id}/retry").status_code

    codes = together(*[partial(retry, job_id) for job_id in jobs])
    assert sorted(map(str, codes)) == ["202"] * 2 + ["429"] * 2


def test_only_a_failed_job_with_its_source_is_retried(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(a_pdf())
    assert error_of(visitor.post(f"/api/jobs/{job_id}/retry")) == (409, "NOT_READY")
    assert fail(place.conn, place.claim(job_id))
    (place.dirs.uploads / f"{job_id}.pdf").unlink()
    assert visitor.get(f"/api/jobs/{job_id}").json()["can_retry"] is False
    assert error_of(visitor.post(f"/api/jobs/{job_id}/retry")) == (409, "EXPIRED")
    visitor.submit(b"no PDF")
    [refused] = visitor.get("/api/jobs?limit=1").json()["jobs"]
    assert error_of(visitor.post(f"/api/jobs/{refused['id']}/retry")) == (409, "NOT_PDF")


@pytest.mark.parametrize("route", ["", "/events", "/progress", "/download"])
def test_an_unknown_job_is_not_there(visitor: Visitor, route: str) -> None:
    assert error_of(visitor.get(f"/api/jobs/{uuid4()}{route}")) == (404, "NOT_FOUND")
    assert error_of(visitor.get(f"/api/jobs/not-an-id{route}")) == (404, "NOT_FOUND")


def test_a_job_written_by_another_program_is_shown_to_its_owner(place: Place, visitor: Visitor) -> None:
    job_id = insert_job(place.conn, "failed", owner_session_id=visitor.owner, error_code="THEIRS")
    shown = visitor.get(f"/api/jobs/{job_id}").json()
    assert (shown["error_code"], shown["original_filename"], shown["can_retry"]) == ("THEIRS", None, False)
    set_status(place.conn, job_id, "queued")
    assert visitor.get(f"/api/jobs/{job_id}").json()["status"] == "queued"


def test_a_route_or_method_that_there_is_not_says_so_as_json(visitor: Visitor) -> None:
    assert error_of(visitor.get("/api/nothing")) == (404, "NOT_FOUND")
    refused = visitor.delete("/api/jobs")
    assert error_of(refused) == (405, "BAD_REQUEST")
    assert "POST" in refused.headers["Allow"]


def test_a_name_is_kept_as_text_and_never_used_as_a_path(place: Place, visitor: Visitor) -> None:
    for name in ("../../etc/passwd", "a\\b:c*?.pdf", "çãé 発票.pdf", "x" * 1000):
        job = visitor.submit(a_pdf(), name=name)
        assert job.status_code == 201, job.text
        assert "/" not in job.json()["original_filename"]
        assert (place.dirs.uploads / f"{job.json()['id']}.pdf").exists()


def test_an_upload_without_a_name_or_with_its_fields_behind_is_taken(visitor: Visitor) -> None:
    boundary = "xyz"
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"\r\n\r\n{a_pdf().decode()}\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="priority"\r\n\r\n7\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="unknown"\r\n\r\n{"z" * 5000}\r\n--{boundary}--\r\n'
    )
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    answer = visitor.post("/api/jobs", data=body.encode(), headers=kind)
    assert (answer.status_code, answer.json()["priority"]) == (201, 7)


def test_a_file_name_that_is_not_utf_8_is_refused_in_plain_words(visitor: Visitor) -> None:
    header = b'Content-Disposition: form-data; name="file"; filename="\xed\xa0\x80.pdf"'
    body = b"--x\r\n" + header + b"\r\n\r\n" + PDF + b"\r\n--x--\r\n"
    for route in ("/api/jobs", "/upload"):
        answer = visitor.post(route, data=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
        assert answer.status_code == 400
        assert "file name, is not valid utf-8" in answer.text.lower()
        assert "\\x" not in answer.text
        assert "Error" not in answer.text


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("application/json", b"{}", 415),
        ("text/plain", b"%PDF-", 415),
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=x", b"", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n", 400),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\n1\r\n--x--',
            400,
        ),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n%PDF-', 400),
    ],
)
def test_a_body_that_is_no_form_with_a_file_is_refused(
    place: Place, visitor: Visitor, kind: str, body: bytes, code: int
) -> None:
    answer = visitor.post("/api/jobs", data=body, headers={"Content-Type": kind})
    assert error_of(answer)[0] == code
    assert not list(place.dirs.uploads.glob(".*"))


def test_two_files_in_one_form_are_refused(visitor: Visitor) -> None:
    files = [("file", ("a.pdf", a_pdf())), ("file", ("b.pdf", a_pdf()))]
    assert error_of(visitor.post("/api/jobs", files=files))[0] == 400
    assert visitor.get("/api/jobs").json()["jobs"] == []
