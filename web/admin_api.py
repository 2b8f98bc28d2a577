"""The operators' API: its routes do what the commands of the same names do, and answer what those print as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from convertq.queue.breaker_state import describe_breaker, move_breakers
from convertq.queue.bulk import BulkProgress, sample_jobs
from convertq.queue.cancel import Cancelling, find_active_jobs
from convertq.queue.database.database import Database
from convertq.queue.errors import Code
from convertq.queue.gateway import UnknownGateway, require_gateway
from convertq.queue.history import MINUTES, MOST_MINUTES, get_history
from convertq.queue.jobs import find_failed_jobs, list_jobs
from convertq.queue.manual_retry import retry_jobs
from convertq.queue.metrics import metrics_text
from convertq.queue.pauses import (
    Scope,
    end_pauses,
    list_pauses,
    move_paused_jobs,
    move_resumed_jobs,
    start_pause,
)
from convertq.queue.queue_events import SHOWN_EVENTS, list_queue_events
from convertq.queue.reclaim import reclaim_all
from convertq.queue.scale import get_scale
from convertq.queue.servers import get_servers
from convertq.queue.stats import get_stats
from convertq.queue.status import JobStatus
from convertq.web.admin_token import operator
from convertq.web.bulk_request import BulkRequest, read_cancel_request, read_retry_request
from convertq.web.context import web
from convertq.web.dashboard import (
    PAGE_EVENTS,
    describe_cancels,
    describe_reclaim,
    describe_retries,
    view_breakers,
    view_pauses,
    view_queue_events,
    view_servers,
)
from convertq.web.http_error import HttpError
from convertq.web.jobs import find_position
from convertq.web.json_body import get_name, read_object
from convertq.web.json_response import json_response
from convertq.web.reads import reading
from convertq.web.request_parameters import (
    LIMIT,
    MAX_LIMIT,
    get_before,
    get_choice,
    get_number,
    get_text,
)
from flask import Blueprint, Response
from prometheus_client import CONTENT_TYPE_LATEST

BOOLEANS = ("true", "false")
MOVE_FOR_SECONDS = 1.0

admin_api = Blueprint("admin_api", __name__, url_prefix="/api/admin")
metrics = Blueprint("metrics", __name__)


@admin_api.get("/dashboard")
def dashboard() -> Response:
    """What the operators' page polls: the routes for `stats` and `servers` answer what the commands print."""
    with reading() as database:
        figures, found = get_stats(database, web().config), get_servers(database, web().config)
        events = list_queue_events(database, PAGE_EVENTS)
    shown = {
        **view_breakers(figures["gateways"]),
        "servers": view_servers(found),
        "pauses": view_pauses(figures["pauses"]),
        "events": view_queue_events(events),
    }
    return json_response({"stats": figures, **shown})


@admin_api.get("/stats")
def stats() -> Response:
    with reading() as database:
        return json_response(get_stats(database, web().config))


@admin_api.get("/servers")
def servers() -> Response:
    with reading() as database:
        return json_response({"servers": get_servers(database, web().config)})


@admin_api.get("/scale")
def scale() -> Response:
    with web().connections.transaction() as database:
        return json_response(get_scale(database, web().config))


@admin_api.get("/history")
def history() -> Response:
    minutes = get_number("minutes", MINUTES, MOST_MINUTES)
    with reading() as database:
        return json_response(get_history(database, minutes))


@admin_api.get("/queue-events")
def queue_events() -> Response:
    limit = get_number("limit", SHOWN_EVENTS, MAX_LIMIT)
    with reading() as database:
        return json_response({"events": list_queue_events(database, limit)})


@admin_api.get("/jobs")
def jobs() -> Response:
    status, code, owner = get_choice("status", list(JobStatus)), get_choice("code", list(Code)), get_text("owner")
    limit, before, dead = get_number("limit", LIMIT, MAX_LIMIT), get_before(), get_choice("dead", BOOLEANS)
    with reading() as database:
        start = find_position(database, before)
        found = list_jobs(database, status, owner, Code(code) if code else None, limit + 1, start, dead=dead == "true")
    rows = found[:limit]
    return json_response({"jobs": rows, "next": rows[-1]["id"] if len(found) > limit else None})


@admin_api.get("/breaker")
def breaker() -> Response:
    with reading() as database:
        return json_response(describe_breaker(database, web().config, get_gateway()))


@admin_api.post("/breaker/<any(open, close):action>")
def act_on_breaker(action: str) -> Response:
    gateway = get_gateway()
    with web().connections.transaction() as database:
        chosen = [gateway] if gateway else web().config.gateway_names
        changed = bool(move_breakers(database, action, chosen, operator()))
        return json_response({**describe_breaker(database, web().config, gateway), "changed": changed})


def get_gateway() -> str | None:
    return get_choice("gateway", web().config.gateway_names)


@admin_api.post("/pause")
def pause() -> Response:
    """The pause is in force when the answer is sent; a supervisor moves what this request has no time for."""
    scope = _read_scope(read_object("gateway", "owner"))
    with web().connections.session() as database:
        changed = start_pause(database, scope, operator())
        move_paused_jobs(database, MOVE_FOR_SECONDS)
        return json_response({"changed": changed, "pauses": list_pauses(database)})


@admin_api.post("/resume")
def resume() -> Response:
    wanted = read_object("gateway", "owner", "all")
    every = wanted.get("all", False)
    if not isinstance(every, bool) or (every and len(wanted) > 1):
        raise HttpError(400, "all must be true or false, and true alone")
    scope = _read_scope(wanted)
    with web().connections.session() as database:
        ended = end_pauses(database, scope, operator(), every=every)
        move_resumed_jobs(database, MOVE_FOR_SECONDS)
        return json_response({"changed": bool(ended), "pauses": list_pauses(database)})


def _read_scope(wanted: dict[str, Any]) -> Scope:
    scope = Scope(get_name(wanted, "gateway"), get_name(wanted, "owner"))
    try:
        require_gateway(scope.gateway, web().config.gateway_names)
    except UnknownGateway as error:
        raise HttpError(400, str(error)) from None
    return scope


@admin_api.post("/reclaim")
def reclaim() -> Response:
    with web().connections.session() as database:
        reclaimed, given_up = reclaim_all(database, web().config, web().store)
    message = describe_reclaim(reclaimed, given_up)
    return json_response({"reclaimed": reclaimed, "given_up": given_up, "message": message})


@admin_api.post("/retry-failed")
def retry_failed() -> Response:
    """Each batch is a transaction of its own, as it is for the command."""
    wanted = read_retry_request()
    with web().connections.session() as database:
        found = find_failed_jobs(database, **wanted.filters) if wanted.ids is None else wanted.ids
        if wanted.dry_run:
            return _preview(database, found)
        ids = wanted.part_of(found)
        queued = retry_jobs(database, web().store, ids, operator())
    skipped = len(ids) - queued
    counts = {"queued": queued, "skipped": skipped, "left": _left(found, wanted)}
    return json_response({**counts, "message": describe_retries(queued, skipped)})


@admin_api.post("/cancel")
def cancel() -> Response:
    """Each batch is a transaction of its own, as it is for the command."""
    wanted, done = read_cancel_request(), BulkProgress(0, 0, 0, 0)

    def record(progress: BulkProgress) -> None:
        nonlocal done
        done = progress

    with web().connections.session() as database:
        cancelling = Cancelling(database, web().store, operator(), cascade=wanted.cascade)
        found = find_active_jobs(database, **wanted.filters) if wanted.ids is None else wanted.ids
        if wanted.dry_run:
            return _preview(database, cancelling.preview(found))
        cancelling.cancel_all(wanted.part_of(found), record)
    counts = {"cancelled": done.done, "skipped": done.skipped, "left": _left(found, wanted)}
    return json_response({**counts, "message": describe_cancels(done.done, done.skipped)})


def _preview(database: Database, found: Sequence[UUID]) -> Response:
    return json_response({"dry_run": True, "matching": len(found), "sample": sample_jobs(database, found)})


def _left(found: Sequence[UUID], wanted: BulkRequest) -> int:
    """How many match and were not tried by this request."""
    return max(0, len(found) - wanted.skip - len(wanted.part_of(found)))


@metrics.get("/metrics")
def scrape() -> Response:
    with reading() as database:
        return Response(metrics_text(database, web().config), content_type=CONTENT_TYPE_LATEST)
