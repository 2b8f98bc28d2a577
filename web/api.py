"""The visitors' API: each of them sees and changes their own jobs only."""

from __future__ import annotations

import hashlib
from uuid import UUID

from convertq.queue.status import JobStatus
from convertq.queue.submission import SubmissionResult
from convertq.web.context import web
from convertq.web.download import download
from convertq.web.jobs import Page, add_estimates, cancel, find_job, list_artifacts, list_events, list_jobs, retry
from convertq.web.json_response import conditional, json_response, json_text
from convertq.web.request_parameters import LIMIT, MAX_LIMIT, get_before, get_choice, get_number
from convertq.web.session import owner
from convertq.web.upload import receive_upload
from flask import Blueprint, Response, request, url_for

api = Blueprint("api", __name__, url_prefix="/api")


@api.post("/jobs")
def submit() -> Response:
    done = receive_upload(request, owner())
    assert done.id is not None  # Only a file that is refused has none.
    answer = json_response(find_job(owner(), done.id), 201 if done.how is SubmissionResult.CREATED else 200)
    answer.headers["Location"] = url_for("api.show", job_id=done.id)
    return answer


@api.get("/jobs")
def index() -> Response:
    status, limit = get_choice("status", list(JobStatus)), get_number("limit", LIMIT, MAX_LIMIT)
    page = list_jobs(owner(), status, limit, get_before())
    answer = Response(content_type="application/json")
    answer.set_etag(_etag_of(page))
    answer.headers["Cache-Control"] = "private, no-cache"  # A browser keeps it and revalidates it each time.
    conditional(answer, request.environ)
    if answer.status_code == 200:
        add_estimates(page.jobs)
        answer.set_data(json_text({"jobs": page.jobs, "active": page.active, "next": page.next}) + "\n")
    return answer


def _etag_of(page: Page) -> str:
    """Changes with everything that the page shows but the estimates. updated_at covers the row; files and the breaker
    are outside it."""
    outside_row = ("progress", "why", "can_retry", "can_cancel", "can_download", "display")
    jobs = [(job["id"].int, job["updated_at"].timestamp(), *(job[name] for name in outside_row)) for job in page.jobs]
    return hashlib.sha256(repr((jobs, page.active, page.next)).encode()).hexdigest()[:32]


@api.get("/jobs/<uuid:job_id>")
def show(job_id: UUID) -> Response:
    return json_response(find_job(owner(), job_id))


@api.get("/jobs/<uuid:job_id>/events")
def events(job_id: UUID) -> Response:
    return json_response({"events": list_events(owner(), job_id)})


@api.get("/jobs/<uuid:job_id>/artifacts")
def artifacts(job_id: UUID) -> Response:
    return json_response({"artifacts": list_artifacts(owner(), job_id)})


@api.get("/jobs/<uuid:job_id>/progress")
def progress(job_id: UUID) -> Response:
    job = find_job(owner(), job_id)
    return json_response({name: job[name] for name in ("id", "status", "progress")})


@api.get("/jobs/<uuid:job_id>/download")
def result(job_id: UUID) -> Response:
    return download(request, owner(), job_id)


@api.post("/jobs/<uuid:job_id>/retry")
def retry_one(job_id: UUID) -> Response:
    return json_response(retry(owner(), job_id), 202)


@api.post("/jobs/<uuid:job_id>/cancel")
def cancel_one(job_id: UUID) -> Response:
    return json_response(cancel(owner(), job_id))


@api.get("/status")
def status() -> Response:
    owner()  # This may be a visitor's first request, which sets the cookie.
    return json_response(web().status.get())


@api.get("/openapi.json")
def openapi() -> Response:
    return json_response(web().openapi)
