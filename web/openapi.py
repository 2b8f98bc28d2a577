"""The contract of the API, as OpenAPI 3.1: each route, what it takes, and every answer that it can give.

Written by hand, and held to: a test compares it with the routes that there are, and another with the answers they give.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from convertq.web.history import MOST_MINUTES
from convertq.web.openapi_parts import (
    ETAG,
    JSON,
    PAGE,
    VERSIONS,
    admin,
    answer,
    answered,
    header,
    of_a_job,
    query,
    result,
    route,
    submitted,
    upload,
)
from convertq.web.openapi_schemas import (
    CODE,
    ID,
    PLAIN_TEXT,
    SCHEMAS,
    STATUS,
    TEXT,
    WHOLE,
    YES_OR_NO,
    fixed,
    listed,
    of,
)
from convertq.worker.version import VERSION

TAGS = {
    "jobs": "a visitor's own",
    "operators": "only where ADMIN_TOKEN is set, and with it",
    "service": "of the queue as a whole",
}


@lru_cache(maxsize=1)
def document(mappings: tuple[str, ...]) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "convertq",
            "version": VERSION,
            "description": "PDFs become XML. Every visitor has a session cookie, and sees the jobs of that session.",
        },
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": _named({**_of_visitors(mappings), **_of_operators(), **_probes()}),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "owner_session_id"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _of_visitors(mappings: tuple[str, ...]) -> dict[str, Any]:
    return {
        "/api/jobs": {
            "get": route(
                "My jobs, newest first", answer(of("Jobs"), headers=(ETAG,)), 304, 400, 403, 404, 412,
                parameters=[query("status", STATUS), *PAGE, *VERSIONS],
            ),
            "post": route(
                "Submit a PDF; the same file again joins the job that it has",
                submitted(), 400, 403, 408, 413, 415, 422, 429, 507, body=upload(mappings), changes=True,
            ),
        },
        "/api/jobs/{job_id}": {"get": of_a_job("One job", answer(of("Job")))},
        "/api/jobs/{job_id}/events": {
            "get": of_a_job("What happened to it, oldest first", answer(fixed(events=listed(of("Event"))))),
        },
        "/api/jobs/{job_id}/progress": {"get": of_a_job("How far it is", answer(of("Progress")))},
        "/api/jobs/{job_id}/download": {
            "get": of_a_job(
                "The XML; counted each time that its first byte is sent", result(), 304, 409, 410, 412, 416,
                parameters=[header("Range", TEXT), header("If-Range", TEXT), *VERSIONS],
            ),
        },
        "/api/jobs/{job_id}/retry": {
            "post": of_a_job("Queue a failed job again", answer(of("Job"), 202), 409, changes=True),
        },
        "/api/status": {"get": route("Whether the queue is held, and how long it is", answer(of("Status")))},
        "/api/openapi.json": {"get": route("This document", answer({"type": "object"}), away=False)},
    }  # fmt: skip


def _of_operators() -> dict[str, Any]:
    choice = [query("status", STATUS), query("code", CODE), query("owner", PLAIN_TEXT), query("dead", YES_OR_NO)]
    minutes = query("minutes", {"type": "integer", "minimum": 1, "maximum": MOST_MINUTES})
    return {
        "/api/admin/stats": {"get": admin("As `convertq stats --json`", answer(of("Stats")))},
        "/api/admin/servers": {
            "get": admin("As `convertq servers --json`", answer(fixed(servers=listed(of("Server"))))),
        },
        "/api/admin/jobs": {
            "get": admin(
                "As `convertq list --json`, page by page",
                answer(fixed(jobs=listed(of("AdminJob")), next={"anyOf": [ID, {"type": "null"}]})), 400,
                parameters=[*choice, *PAGE],
            ),
        },
        "/api/admin/history": {
            "get": admin(
                "The last minutes, one by one", answer(fixed(minutes=listed(of("Minute")))), 400, parameters=[minutes]
            ),
        },
        "/api/admin/breaker": {"get": admin("As `convertq breaker --json`", answer(of("Breaker")))},
        "/api/admin/breaker/{action}": {
            "post": admin(
                "Open or close the breaker by hand", answer(of("MovedBreaker")), changes=True,
                parameters=[{"name": "action", "in": "path", "required": True, "schema": {"enum": ["open", "close"]}}],
            ),
        },
        "/api/admin/reclaim": {
            "post": admin(
                "Give jobs of lost workers back to the queue", answer(fixed(reclaimed=WHOLE, given_up=WHOLE)),
                changes=True,
            ),
        },
        "/api/admin/retry-failed": {
            "post": admin(
                "Queue failed jobs again: by id, or all that have this code, owner, or are dead letters",
                answer(fixed(queued=WHOLE, skipped=WHOLE)), 400, 413, changes=True,
                body={"required": False, "content": {JSON: {"schema": of("Retries")}}},
            ),
        },
        "/metrics": {
            "get": admin("Prometheus, of the whole cluster", answered(200, "text", "text/plain", {"type": "string"})),
        },
    }  # fmt: skip


def _probes() -> dict[str, Any]:
    return {
        "/health": {"get": route("This process lives", answer(fixed(status={"const": "alive"})), away=False)},
        "/ready": {"get": route("The database and its schema are fine", answer(fixed(status={"const": "ready"})))},
    }


def _named(paths: dict[str, Any]) -> dict[str, Any]:
    """Each route with the name that a generated client gives it: `post_job_retry`, `get_admin_stats`."""
    for path, methods in paths.items():
        words = path.removeprefix("/api/").replace("jobs/{job_id}", "job").replace(".json", "")
        for method, described in methods.items():
            name = "_".join([method, *re.findall(r"\w+", words)])
            described |= {"operationId": name, "tags": [_tag(path)]}
    return paths


def _tag(path: str) -> str:
    if path.startswith("/api/admin") or path == "/metrics":
        return "operators"
    return "jobs" if path.startswith("/api/jobs") else "service"
