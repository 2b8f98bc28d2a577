"""The visitor's API: their own jobs, and nothing of anybody else's."""

from __future__ import annotations

import hashlib
from uuid import UUID

from convertq.web.asked import LIMIT, MAX_LIMIT, asked_before, asked_choice, asked_number
from convertq.web.context import web
from convertq.web.download import download
from convertq.web.jobs import Page, find_hold, find_job, list_events, list_jobs, retry
from convertq.web.json_answer import conditional, json_answer, json_text
from convertq.web.openapi import document
from convertq.web.session import owner
from convertq.web.upload import receive_upload
from convertq.worker.counters import STATUSES, Counters
from convertq.worker.submission import How
from flask import Blueprint, Response, request, url_for

api = Blueprint("api", __name__, url_prefix="/api")


@api.post("/jobs")
def submit() -> Response:
    done = receive_upload(request, owner())
    assert done.id is not None  # only a refused file has none
    answer = json_answer(find_job(owner(), done.id), 201 if done.how is How.CREATED else 200)
    answer.headers["Location"] = url_for("api.show", job_id=done.id)
    return answer


@api.get("/jobs")
def index() -> Response:
    status, limit = asked_choice("status", STATUSES), asked_number("limit", LIMIT, MAX_LIMIT)
    page = list_jobs(owner(), status, limit, asked_before())
    answer = Response(content_type="application/json")
    answer.set_etag(_version(page))
    answer.headers["Cache-Control"] = "private, no-cache"  # kept, and asked for anew each time
    conditional(answer, request.environ)
    if answer.status_code == 200:
        answer.set_data(json_text({"jobs": page.jobs, "active": page.active, "next": page.next}) + "\n")
    return answer


def _version(page: Page) -> str:
    """Changes with what the page shows: a row's updated_at moves at every change; files and the hold are no rows."""
    moving = ("progress", "why", "can_retry", "can_download")
    jobs = [(job["id"].int, job["updated_at"].timestamp(), *(job[name] for name in moving)) for job in page.jobs]
    return hashlib.sha256(repr((jobs, page.active, page.next)).encode()).hexdigest()[:32]


@api.get("/jobs/<uuid:job_id>")
def show(job_id: UUID) -> Response:
    return json_answer(find_job(owner(), job_id))


@api.get("/jobs/<uuid:job_id>/events")
def events(job_id: UUID) -> Response:
    return json_answer({"events": list_events(owner(), job_id)})


@api.get("/jobs/<uuid:job_id>/progress")
def progress(job_id: UUID) -> Response:
    job = find_job(owner(), job_id)
    return json_answer({name: job[name] for name in ("id", "status", "progress")})


@api.get("/jobs/<uuid:job_id>/download")
def result(job_id: UUID) -> Response:
    return download(request, owner(), job_id)


@api.post("/jobs/<uuid:job_id>/retry")
def retry_one(job_id: UUID) -> Response:
    return json_answer(retry(owner(), job_id), 202)


@api.get("/status")
def status() -> Response:
    with web().connections.transaction() as database:
        hold = find_hold(database)
        queued = Counters(database)("jobs", "queued")
    owner()  # a page that asks this first is a visitor too
    return json_answer({"breaker": hold["breaker"], "queue_depth": queued})


@api.get("/openapi.json")
def openapi() -> Response:
    return json_answer(document(web().config.mappings_allowed))
