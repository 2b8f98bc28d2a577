"""The codes of refusals: one of a job's or a file's where it is about one, and otherwise the request's own."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.integration.conftest import Place
from tests.web_client import PDF, TOKEN, Visitor, error_of

PROBLEM = "application/problem+json"
AN_ID = uuid4()
#: method and path of a request that is refused whatever is in the database, its status and its code
REFUSED = {
    "a wrong number": ("GET", "/api/jobs?limit=0", 400, "BAD_REQUEST"),
    "no form": ("POST", "/api/jobs", 415, "BAD_REQUEST"),
    "no such job": ("GET", f"/api/jobs/{AN_ID}", 404, "NOT_FOUND"),
    "no such job to retry": ("POST", f"/api/jobs/{AN_ID}/retry", 404, "NOT_FOUND"),
    "no such job to download": ("GET", f"/api/jobs/{AN_ID}/download", 404, "NOT_FOUND"),
    "no such route": ("GET", "/api/nothing", 404, "NOT_FOUND"),
    "no such page": ("GET", "/nothing", 404, "NOT_FOUND"),
    "no such method": ("DELETE", "/api/jobs", 405, "BAD_REQUEST"),
    "no token": ("GET", "/api/admin/stats", 401, "UNAUTHORIZED"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_has_the_code_of_its_kind(visitor: Visitor, name: str) -> None:
    method, path, status, code = REFUSED[name]
    assert error_of(visitor.request(method, path)) == (status, code)


@pytest.mark.parametrize("name", REFUSED)
def test_who_asks_for_a_problem_document_gets_one_with_the_same_code(visitor: Visitor, name: str) -> None:
    method, path, status, code = REFUSED[name]
    plain = visitor.request(method, path)
    answer = visitor.request(method, path, headers={"Accept": f"application/json, {PROBLEM}"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, PROBLEM)
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "code"}
    assert (problem["type"], problem["status"], problem["code"]) == ("about:blank", status, code)
    assert problem["detail"] == plain.json()["error"]["message"]
    for header in ("Allow", "WWW-Authenticate"):
        assert answer.headers.get(header) == plain.headers.get(header)


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/*", f"{PROBLEM};q=0", "text/html, */*"])
def test_who_does_not_ask_for_it_gets_the_usual_error(visitor: Visitor, accept: str) -> None:
    answer = visitor.get("/api/nothing", headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "application/json"
    assert error_of(answer) == (404, "NOT_FOUND")


def test_what_is_about_a_file_or_a_job_keeps_its_code(place: Place, visitor: Visitor) -> None:
    asks = {"Accept": PROBLEM}
    refused = visitor.post("/api/jobs", files={"file": ("a.pdf", b"hello")}, headers=asks)
    assert (refused.status_code, refused.json()["code"]) == (400, "NOT_PDF")
    large = visitor.post("/api/jobs", files={"file": ("a.pdf", PDF.ljust(1_100_000))}, headers=asks)
    assert (large.status_code, large.json()["code"]) == (413, "TOO_LARGE")
    job_id = visitor.submitted(PDF + uuid4().hex.encode())
    waiting = visitor.get(f"/api/jobs/{job_id}/download", headers=asks)
    assert (waiting.status_code, waiting.json()["code"]) == (409, "NOT_READY")
    stranger = place.site.visitor().get(f"/api/jobs/{job_id}", headers=asks)
    assert (stranger.status_code, stranger.json()["code"]) == (403, "FORBIDDEN")
    elsewhere = place.site.visitor(**{"Sec-Fetch-Site": "cross-site"}).post("/api/jobs", headers=asks)
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (403, "FORBIDDEN")


def test_the_page_of_a_person_stays_a_page(visitor: Visitor) -> None:
    page = visitor.get("/nothing", headers={"Accept": "text/html"})
    assert page.headers["Content-Type"].startswith("text/html")
    problem = visitor.post(f"/jobs/{AN_ID}/retry", headers={"Accept": PROBLEM})
    assert (problem.status_code, problem.headers["Content-Type"]) == (404, PROBLEM)


def test_a_token_of_another_kind_is_unauthorized(place: Place) -> None:
    answer = place.site.visitor(Authorization=f"Basic {TOKEN}").get("/api/admin/stats")
    assert error_of(answer) == (401, "UNAUTHORIZED")
