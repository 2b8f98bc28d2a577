"""The pages that people look at. The queue page works without a script too: forms to upload and retry, links."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from convertq.web import jobs
from convertq.web.context import web
from convertq.web.many_files import MOST_FILES, Receipt, receive_files
from convertq.web.refusal import DatabaseDown, Refusal
from convertq.web.session import owner
from convertq.web.wording import (
    AWAY,
    BUSY,
    NO_NAME,
    SEND_AGAIN,
    STATES,
    age,
    detail_of,
    errors_in_words,
    help_for,
    limit_in_words,
    percent_of,
    state_of,
)
from convertq.worker.errors import Code
from convertq.worker.words import size
from flask import Blueprint, Response, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

pages = Blueprint("pages", __name__)

FILTERS = ("complete", "failed")
#: what the script clones and fills
BLANK = {"id": "", "status": "", "can_download": False, "can_retry": False}
BLANK_LOOK = {**STATES["queued"], "name": "", "help": None, "percent": None, "size": "", "age": "", "created_at": ""}


@pages.get("/")
def queue() -> Response:
    status = request.args.get("status", "")
    status = status if status in FILTERS else ""
    try:
        shown = jobs.list_jobs(owner(), status or None, before=_cursor(request.args.get("before")))
    except DatabaseDown:
        return _queue_page(503, jobs.Page((), 0, None), status, away=True)
    return _queue_page(200, shown, status)


def _queue_page(code: int, shown: jobs.Page, status: str, *, away: bool = False) -> Response:
    config = web().config
    errors = errors_in_words(config.max_upload_bytes)
    now = datetime.now(UTC)
    text = render_template(
        "queue.html", jobs=[(job, _look(job, now, errors, held=shown.held)) for job in shown.jobs], active=shown.active,
        next=shown.next, status=status, held=shown.held, away=away, said=_said(),
        before=_cursor(request.args.get("before")), mappings=config.mappings_allowed,
        max_bytes=config.max_upload_bytes, max_size=limit_in_words(config.max_upload_bytes),
        words={"busy": BUSY, "away": AWAY}, blank=BLANK, blank_view=BLANK_LOOK, most_files=MOST_FILES,
        wording={"states": STATES, "errors": errors, "send_again": SEND_AGAIN, "no_name": NO_NAME},
    )  # fmt: skip
    return make_response(text, code)


def _look(job: dict[str, Any], now: datetime, errors: dict[str, dict[str, str]], *, held: bool) -> dict[str, Any]:
    state = state_of(job, now, held=held)
    return {
        **STATES[state],
        "detail": detail_of(job, state, now),
        "help": help_for(job, errors),
        "percent": percent_of(job),
        "name": job["original_filename"] or NO_NAME,
        "size": size(job["bytes"]),
        "age": age(job["created_at"], now),
        "created_at": job["created_at"].isoformat(),
    }


@pages.post("/upload")
def upload() -> AnyResponse:
    """For a browser without a script; the script sends each file to the API."""
    receipt = receive_files(request, owner())
    return redirect(url_for("pages.queue", **{name: number for name, number in vars(receipt).items() if number}), 303)


@pages.post("/jobs/<uuid:job_id>/retry")
def retry(job_id: UUID) -> AnyResponse:
    jobs.retry(owner(), job_id)
    return redirect(url_for("pages.queue"), 303)


@pages.get("/admin")
def admin() -> Response:
    """Without anything to see: what it shows, its script asks for with the operator's token."""
    if web().config.admin_token is None:
        raise Refusal(404, "there is nothing here")
    return make_response(render_template("admin.html", codes=list(Code)))


@pages.errorhandler(Refusal)
def say(refusal: Refusal) -> Response:
    away = AWAY if isinstance(refusal, DatabaseDown) else None
    answer = make_response(render_template("refusal.html", refusal=refusal, away=away), refusal.status)
    answer.headers.extend(refusal.headers)
    return answer


def _said() -> dict[str, str] | None:
    """What became of the form that led here."""
    told = Receipt(*(max(request.args.get(name, 0, int), 0) for name in ("sent", "refused", "full")))
    return told.in_words() if told != Receipt() else None


def _cursor(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
