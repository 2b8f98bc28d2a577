"""What a load balancer asks: whether this process lives, and whether it can do its work."""

from __future__ import annotations

from convertq.web.context import web
from convertq.web.json_answer import json_answer
from convertq.web.refusal import DatabaseDown, Refusal
from flask import Blueprint, Response

probes = Blueprint("probes", __name__)


@probes.get("/health")
def health() -> Response:
    """Alive; it asks nobody else, so that a database that is down restarts no web process."""
    return json_answer({"status": "alive"})


@probes.get("/ready")
def ready() -> Response:
    try:
        with web().connections.session() as database:
            database.check_schema()
    except DatabaseDown as down:
        raise Refusal(503, f"not ready: {down.reason}", headers=down.headers) from down
    return json_answer({"status": "ready"})
