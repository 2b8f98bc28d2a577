"""Cancelling through the API and the pages: a visitor's own job, and many jobs by an operator."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.integration.conftest import Place
from tests.jobs import events_of, fail, insert_job, last_event, register_server, row_of, run, status_of
from tests.web_client import PDF, Visitor, error_of


@pytest.fixture(scope="module", autouse=True)
def server(place: Place) -> str:
    return register_server(place.conn)


def a_pdf() -> bytes:
    return PDF + uuid4().bytes.hex().encode()


# -- a visitor's job --


def test_a_visitor_cancels_a_waiting_and_a_running_job_and_starts_one_over(place: Place, visitor: Visitor) -> None:
    waiting, running = visitor.submitted(a_pdf()), visitor.submitted(a_pdf())
    claimed = place.claim(running)
    for job_id in (waiting, running):
        assert visitor.get(f"/api/jobs/{job_id}").json()["can_cancel"] is True
        for _ in range(2):  # also when it is cancelled already
            answer = visitor.post(f"/api/jobs/{job_id}/cancel")
            assert answer.status_code == 200
            job = answer.json()
            assert (job["status"], job["can_cancel"], job["can_retry"]) == ("cancelled", False, True)
            assert (job["display"]["word"], job["display"]["is_active"]) == ("Cancelled", False)
            assert job["cancelled_at"] is not None
        assert last_event(place.conn, job_id)["meta"]["by"] == "its owner"
        assert events_of(place.conn, job_id).count("cancelled") == 1
    assert not fail(place.conn, claimed)
    assert visitor.get("/api/jobs").json()["active"] == 0
    refused = visitor.get(f"/api/jobs/{running}/download")
    assert error_of(refused) == (409, "NOT_READY")
    assert refused.json()["error"]["message"] == "the job is cancelled: there is no result"
    shown = visitor.get(f"/api/jobs/{waiting}/events").json()["events"][-1]
    assert (shown["event_type"], shown["meta"]) == ("cancelled", {})
    assert visitor.post(f"/api/jobs/{waiting}/retry").json()["status"] == "queued"
    assert [job["id"] for job in visitor.get("/api/jobs?status=cancelled").json()["jobs"]] == [str(running)]


def test_a_job_that_has_ended_or_is_not_the_visitors_is_not_cancelled(place: Place, visitor: Visitor) -> None:
    done, failed, theirs = (visitor.submitted(a_pdf()) for _ in range(3))
    place.complete(done)
    assert fail(place.conn, place.claim(failed))
    for job_id in (done, failed):
        assert error_of(visitor.post(f"/api/jobs/{job_id}/cancel")) == (409, "CONFLICT")
    other = place.site.visitor()
    assert error_of(other.post(f"/api/jobs/{theirs}/cancel")) == (403, "FORBIDDEN")
    assert error_of(visitor.post(f"/api/jobs/{uuid4()}/cancel")) == (404, "NOT_FOUND")
    assert status_of(place.conn, theirs) == "queued"


def test_the_page_has_a_cancel_button_that_needs_no_script(place: Place, visitor: Visitor) -> None:
    job_id = visitor.submitted(a_pdf())
    form = f'<form class="end" method="post" action="/jobs/{job_id}/cancel">'
    assert form in visitor.get("/").text
    answer = visitor.post(f"/jobs/{job_id}/cancel")
    assert answer.status_code in (200, 303)
    page = visitor.get("/").text
    assert form not in page
    assert "Cancelled" in page
    assert status_of(place.conn, job_id) == "cancelled"


# -- an operator's bulk --


def test_an_operator_previews_and_cancels_by_filter_in_steps(place: Place, operator: Visitor) -> None:
    owner = str(uuid4())
    jobs = [insert_job(place.conn, owner_session_id=owner, original_filename=f"{n}.pdf") for n in range(12)]
    waiting = insert_job(place.conn, "uploaded", owner_session_id="another")
    run(place.conn, "add_dependency", id=waiting, depends_on=jobs[0])
    seen = operator.post("/api/admin/cancel", json={"owner": owner, "cascade": True, "dry_run": True}).json()
    assert (seen["dry_run"], seen["matching"], len(seen["sample"])) == (True, 13, 10)
    assert seen["sample"][0]["original_filename"] == "0.pdf"
    assert {status_of(place.conn, job) for job in jobs} == {"queued"}
    first = operator.post("/api/admin/cancel", json={"owner": owner, "limit": 5}).json()
    assert first == {"cancelled": 5, "skipped": 0, "left": 7, "message": "5 jobs cancelled"}
    rest = operator.post("/api/admin/cancel", json={"owner": owner, "status": "queued"}).json()
    assert (rest["cancelled"], rest["left"]) == (7, 0)
    assert last_event(place.conn, jobs[0])["meta"]["by"].startswith("token ")
    assert status_of(place.conn, waiting) == "uploaded"
    by_id = operator.post("/api/admin/cancel", json={"ids": [str(waiting), str(jobs[0])]}).json()
    assert (by_id["cancelled"], by_id["skipped"]) == (1, 1)
    assert by_id["message"] == "1 job cancelled, 1 left: no longer unfinished"


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"dry_run": True}, {"status": "complete"}, {"status": None}, {"owner": 5}, {"ids": []}, {"cascade": True},
        {"ids": [str(UUID(int=1))], "owner": "o"}, {"owner": "o", "limit": 0}, {"owner": "o", "dry_run": "yes"},
        {"owner": "o", "skip": -1}, {"mapping": "m", "code": "GW_5XX"}, {"owner": "o", "cascade": 1},
    ],
)  # fmt: skip
def test_a_cancel_that_cannot_be_meant_is_refused(operator: Visitor, wrong: dict[str, Any]) -> None:
    assert error_of(operator.post("/api/admin/cancel", json=wrong)) == (400, "BAD_REQUEST")


def test_a_retry_by_filter_has_a_preview_and_goes_in_steps(place: Place, operator: Visitor, visitor: Visitor) -> None:
    jobs = [visitor.submitted(a_pdf()) for _ in range(3)]
    for job_id in jobs:
        assert fail(place.conn, place.claim(job_id))
    (place.dirs.uploads / f"{jobs[0]}.pdf").unlink()
    owner = row_of(place.conn, jobs[0])["owner_session_id"]
    seen = operator.post("/api/admin/retry-failed", json={"owner": owner, "dry_run": True}).json()
    assert (seen["matching"], [job["id"] for job in seen["sample"]]) == (3, [str(job_id) for job_id in jobs])
    first = operator.post("/api/admin/retry-failed", json={"owner": owner, "limit": 2}).json()
    assert (first["queued"], first["skipped"], first["left"]) == (1, 1, 1)
    rest = operator.post("/api/admin/retry-failed", json={"owner": owner, "limit": 2, "skip": 1}).json()
    assert (rest["queued"], rest["skipped"], rest["left"]) == (1, 0, 0)
