"""The operators' API: its routes do what the commands of the same names do, and answer what those print as JSON."""

from __future__ import annotations

from convertq.queue.breaker_state import ACTIONS, describe_breaker
from convertq.queue.errors import Code
from convertq.queue.history import MINUTES, MOST_MINUTES, get_history
from convertq.queue.jobs import find_failed_jobs, list_jobs
from convertq.queue.manual_retry import retry_jobs
from convertq.queue.metrics import metrics_text
from convertq.queue.reclaim import reclaim_all
from convertq.queue.servers import get_servers
from convertq.queue.stats import get_stats
from convertq.queue.status import JobStatus
from convertq.web.context import web
from convertq.web.dashboard import describe_reclaim, describe_retries, view_breaker, view_servers
from convertq.web.jobs import find_position
from convertq.web.json_response import json_response
from convertq.web.request_parameters import (
    LIMIT,
    MAX_LIMIT,
    get_before,
    get_choice,
    get_number,
    get_text,
    read_retry_request,
)
from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST

BOOLEANS = ("true", "false")

admin_api = Blueprint("admin_api", __name__, url_prefix="/api/admin")
metrics = Blueprint("metrics", __name__)


@admin_api.get("/dashboard")
def dashboard() -> Response:
    """What the operators' page polls: the routes for `stats` and `servers` answer what the commands print."""
    with web().connections.transaction() as database:
        figures, found = get_stats(database, web().config), get_servers(database, web().config)
    shown = {"breaker": view_breaker(figures["breaker"]), "servers": view_servers(found)}
    return json_response({"stats": figures, **shown})


@admin_api.get("/stats")
def stats() -> Response:
    with web().connections.transaction() as database:
        return json_response(get_stats(database, web().config))


@admin_api.get("/servers")
def servers() -> Response:
    with web().connections.transaction() as database:
        return json_response({"servers": get_servers(database, web().config)})


@admin_api.get("/history")
def history() -> Response:
    minutes = get_number("minutes", MINUTES, MOST_MINUTES)
    with web().connections.transaction() as database:
        return json_response(get_history(database, minutes))


@admin_api.get("/jobs")
def jobs() -> Response:
    status, code, owner = get_choice("status", list(JobStatus)), get_choice("code", list(Code)), get_text("owner")
    limit, before, dead = get_number("limit", LIMIT, MAX_LIMIT), get_before(), get_choice("dead", BOOLEANS)
    with web().connections.transaction() as database:
        start = find_position(database, before)
        found = list_jobs(database, status, owner, Code(code) if code else None, limit + 1, start, dead=dead == "true")
    rows = found[:limit]
    return json_response({"jobs": rows, "next": rows[-1]["id"] if len(found) > limit else None})


@admin_api.get("/breaker")
def breaker() -> Response:
    with web().connections.transaction() as database:
        return json_response(describe_breaker(database, web().config))


@admin_api.post("/breaker/<any(open, close):action>")
def move_breaker(action: str) -> Response:
    with web().connections.transaction() as database:
        changed = ACTIONS[action](database) is not None
        return json_response({**describe_breaker(database, web().config), "changed": changed})


@admin_api.post("/reclaim")
def reclaim() -> Response:
    with web().connections.session() as database:
        reclaimed, given_up = reclaim_all(database, web().config, web().store)
    message = describe_reclaim(reclaimed, given_up)
    return json_response({"reclaimed": reclaimed, "given_up": given_up, "message": message})


@admin_api.post("/retry-failed")
def retry_failed() -> Response:
    """Each batch is a transaction of its own, as it is for the command."""
    ids, filters = read_retry_request()
    with web().connections.session() as database:
        if ids is None:
            ids = find_failed_jobs(database, **filters)
        queued = retry_jobs(database, web().store, ids)
    skipped = len(ids) - queued
    return json_response({"queued": queued, "skipped": skipped, "message": describe_retries(queued, skipped)})


@metrics.get("/metrics")
def scrape() -> Response:
    with web().connections.transaction() as database:
        return Response(metrics_text(database, web().config), content_type=CONTENT_TYPE_LATEST)
