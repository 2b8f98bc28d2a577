"""The operator's API: what the commands of the same names do and print as JSON."""

from __future__ import annotations

from convertq.web.asked import LIMIT, MAX_LIMIT, asked_before, asked_choice, asked_number, asked_retries, asked_text
from convertq.web.context import web
from convertq.web.history import MINUTES, MOST_MINUTES, get_history
from convertq.web.jobs import find_place
from convertq.web.json_answer import json_answer
from convertq.worker.counters import STATUSES
from convertq.worker.errors import Code
from convertq.worker.job_list import find_jobs
from convertq.worker.manual_retry import retry_jobs
from convertq.worker.metrics import metrics_text
from convertq.worker.reclaim import reclaim_all
from convertq.worker.stats import describe_breaker, get_servers, get_stats
from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST

YES_OR_NO = ("true", "false")
BY_HAND = {"open": "open_breaker_by_hand", "close": "close_breaker_by_hand"}

admin_api = Blueprint("admin_api", __name__, url_prefix="/api/admin")
metrics = Blueprint("metrics", __name__)


@admin_api.get("/stats")
def stats() -> Response:
    with web().connections.transaction() as database:
        return json_answer(get_stats(database, web().config))


@admin_api.get("/servers")
def servers() -> Response:
    with web().connections.transaction() as database:
        return json_answer({"servers": get_servers(database, web().config)})


@admin_api.get("/history")
def history() -> Response:
    minutes = asked_number("minutes", MINUTES, MOST_MINUTES)
    with web().connections.transaction() as database:
        return json_answer(get_history(database, minutes))


@admin_api.get("/jobs")
def jobs() -> Response:
    status, code, owner = asked_choice("status", STATUSES), asked_choice("code", list(Code)), asked_text("owner")
    limit, before, dead = asked_number("limit", LIMIT, MAX_LIMIT), asked_before(), asked_choice("dead", YES_OR_NO)
    with web().connections.transaction() as database:
        place = find_place(database, before)
        found = find_jobs(database, status, owner, Code(code) if code else None, limit + 1, place, dead=dead == "true")
    rows = found[:limit]
    return json_answer({"jobs": rows, "next": rows[-1]["id"] if len(found) > limit else None})


@admin_api.get("/breaker")
def breaker() -> Response:
    with web().connections.transaction() as database:
        return json_answer(describe_breaker(database, web().config))


@admin_api.post("/breaker/<any(open, close):action>")
def move_breaker(action: str) -> Response:
    with web().connections.transaction() as database:
        changed = database.one(BY_HAND[action]) is not None
        return json_answer({**describe_breaker(database, web().config), "changed": changed})


@admin_api.post("/reclaim")
def reclaim() -> Response:
    with web().connections.session() as database:
        reclaimed, given_up = reclaim_all(database, web().config, web().files)
    return json_answer({"reclaimed": reclaimed, "given_up": given_up})


@admin_api.post("/retry-failed")
def retry_failed() -> Response:
    """By id or in bulk; each batch is a transaction of its own, as with the command."""
    ids, filters = asked_retries()
    with web().connections.session() as database:
        if ids is None:
            ids = [row["id"] for row in database.run("find_failed_jobs", **filters)]
        queued = retry_jobs(database, web().files, ids)
    return json_answer({"queued": queued, "skipped": len(ids) - queued})


@metrics.get("/metrics")
def scrape() -> Response:
    with web().connections.transaction() as database:
        return Response(metrics_text(database, web().config), content_type=CONTENT_TYPE_LATEST)
