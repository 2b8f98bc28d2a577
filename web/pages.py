"""The pages for people. The queue page works without JavaScript too: it has forms to upload and retry, and links."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from convertq.queue.errors import Code
from convertq.queue.quantities import size
from convertq.queue.status import ACTIVE, JobStatus
from convertq.web import jobs
from convertq.web.bulk_upload import MAX_FILES, BulkResult, receive_bulk_upload
from convertq.web.context import web
from convertq.web.http_error import NO_SUCH_PAGE, DatabaseDown, HttpError
from convertq.web.json_response import asks_for_problem, error_response
from convertq.web.session import owner
from convertq.web.wording import (
    AWAY,
    BUSY,
    STATES,
    age,
    errors_in_words,
    expected_end,
    limit_in_words,
    percent_of,
    with_time_left,
)
from flask import Blueprint, Response, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

pages = Blueprint("pages", __name__)

FILTERS = (JobStatus.COMPLETE, JobStatus.FAILED)
#: The row that the script clones and fills.
BLANK = {"id": "", "status": "", "can_download": False, "can_retry": False, "can_cancel": False}
BLANK_VIEW = {
    **STATES[JobStatus.QUEUED],
    "name": "",
    "help": None,
    "expected": "",
    "percent": None,
    "size": "",
    "age": "",
    "created_at": "",
}


@pages.get("/")
def queue() -> Response:
    status = request.args.get("status", "")
    status = status if status in FILTERS else ""
    try:
        shown = jobs.list_jobs(owner(), status or None, before=_cursor(request.args.get("before")))
        jobs.add_estimates(shown.jobs)
    except DatabaseDown:
        return _queue_page(503, jobs.Page((), 0, None), status, away=True)
    return _queue_page(200, shown, status)


def _queue_page(code: int, shown: jobs.Page, status: str, *, away: bool = False) -> Response:
    config = web().config
    now = datetime.now(UTC)
    text = render_template(
        "queue.html", jobs=[(job, _row_view(job, now)) for job in shown.jobs],
        active=shown.active, next=shown.next, status=status, held=shown.held, away=away, result=_bulk_result(),
        before=_cursor(request.args.get("before")), mappings=config.mappings_allowed,
        max_bytes=config.max_upload_bytes, max_size=limit_in_words(config.max_upload_bytes),
        words={"busy": BUSY, "away": AWAY}, blank=BLANK, blank_view=BLANK_VIEW, max_files=MAX_FILES,
        wording={"states": STATES, "errors": errors_in_words(config.max_upload_bytes)},
    )  # fmt: skip
    return make_response(text, code)


def _row_view(job: dict[str, Any], now: datetime) -> dict[str, Any]:
    shown = job["display"]
    return {
        **STATES[shown["state"]],
        **shown,
        "detail": with_time_left(shown, now),
        "expected": expected_end(job["estimate"], now),
        "percent": percent_of(job),
        "size": size(job["bytes"]),
        "age": age(job["created_at"], now),
        "created_at": job["created_at"].isoformat(),
    }


@pages.post("/upload")
def upload() -> AnyResponse:
    """For browsers without JavaScript; the script sends each file to the API."""
    result = receive_bulk_upload(request, owner())
    return redirect(url_for("pages.queue", **{name: number for name, number in vars(result).items() if number}), 303)


@pages.post("/jobs/<uuid:job_id>/retry")
def retry(job_id: UUID) -> AnyResponse:
    jobs.retry(owner(), job_id)
    return redirect(url_for("pages.queue"), 303)


@pages.post("/jobs/<uuid:job_id>/cancel")
def cancel(job_id: UUID) -> AnyResponse:
    jobs.cancel(owner(), job_id)
    return redirect(url_for("pages.queue"), 303)


@pages.get("/admin")
def admin() -> Response:
    """The page contains no data: its script requests it with the operator's token."""
    if web().config.admin_token is None:
        raise HttpError(404, NO_SUCH_PAGE)
    return make_response(render_template("admin.html", codes=list(Code), active=list(ACTIVE)))


@pages.errorhandler(HttpError)
def error_page(error: HttpError) -> Response:
    if asks_for_problem():
        return error_response(error)
    unreachable = AWAY if isinstance(error, DatabaseDown) else None
    response = make_response(render_template("error.html", error=error, away=unreachable), error.status)
    response.headers.extend(error.headers)
    return response


def _bulk_result() -> dict[str, str] | None:
    """The result of the form that redirected to this page."""
    result = BulkResult(*(max(request.args.get(name, 0, int), 0) for name in ("sent", "refused", "full")))
    return result.as_message() if result != BulkResult() else None


def _cursor(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
