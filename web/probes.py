"""For load balancers: whether this process is alive, and whether it can serve requests."""

from __future__ import annotations

from convertq.web.admin_token import is_operator
from convertq.web.context import web
from convertq.web.http_error import DatabaseDown, HttpError
from convertq.web.json_response import json_response
from flask import Blueprint, Response

probes = Blueprint("probes", __name__)


@probes.get("/health")
def health() -> Response:
    """Does not use the database, so that an outage of it restarts no web process."""
    return json_response({"status": "alive"})


@probes.get("/ready")
def ready() -> Response:
    """Only operators get the full reason: it may name the database's host, port and role."""
    try:
        with web().connections.session() as database:
            database.check_schema()
    except DatabaseDown as down:
        reason = down.reason if is_operator() else down.public_reason
        raise HttpError(503, f"not ready: {reason}", headers=down.headers) from down
    return json_response({"status": "ready"})
