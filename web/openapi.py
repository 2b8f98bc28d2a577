"""The contract of the API, as OpenAPI 3.1: each route, what it takes, and every answer that it can give.

Written by hand, and held to: a test compares it with the routes that there are, and another with the answers they give.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from convertq.web.asked import MAX_LIMIT
from convertq.web.history import MOST_MINUTES
from convertq.web.openapi_schemas import CODE, ID, PLAIN_TEXT, SCHEMAS, STATUS, TIME, WHOLE, Schema, fixed, listed, of
from convertq.web.upload import PRIORITY
from convertq.worker.version import VERSION

JSON = "application/json"
VISITOR: list[dict[str, list[str]]] = [{}, {"session": []}]
OPERATOR: list[dict[str, list[str]]] = [{"token": []}]
EMPTY: Schema = {"const": ""}  # a field that a form left empty counts as unset
#: what a status means where it is an error, on every route that can give it
ERRORS = {
    400: "what was sent cannot be read, or names something that there is not; NOT_PDF: the file is no PDF",
    401: "the operator's token is missing or wrong",
    403: "FORBIDDEN: another visitor's job, or a request that did not come from this site",
    404: "there is no such job, or no such route",
    408: "what was announced did not arrive in time",
    409: "NOT_READY: the job is not in a state that allows it; EXPIRED: its file is no longer kept",
    410: "EXPIRED: the result is no longer kept",
    413: "TOO_LARGE",
    415: "the body is of another type",
    416: "the file has no such range",
    422: "a field's value is not allowed, such as an unknown mapping",
    429: "this visitor has as many unfinished jobs as allowed",
    503: "the database is not reachable just now; Retry-After says when to ask again",
    507: "IO_ERROR: the file could not be stored",
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
        "paths": {**_of_visitors(mappings), **_of_operators(), **_probes()},
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
            "get": _route(
                "My jobs, newest first", answer(of("Jobs")), 304, 400, 403, 404,
                parameters=[_query("status", STATUS), *PAGE, _header("If-None-Match", {"type": "string"})],
            ),
            "post": _route(
                "Submit a PDF; the same file again joins the job that it has",
                _submitted(), 400, 403, 408, 413, 415, 422, 429, 507, body=_upload(mappings), changes=True,
            ),
        },
        "/api/jobs/{job_id}": {"get": _of_a_job("One job", answer(of("Job")))},
        "/api/jobs/{job_id}/events": {
            "get": _of_a_job("What happened to it, oldest first", answer(fixed(events=listed(of("Event"))))),
        },
        "/api/jobs/{job_id}/progress": {"get": _of_a_job("How far it is", answer(of("Progress")))},
        "/api/jobs/{job_id}/download": {
            "get": _of_a_job("The XML; counted each time that its first byte is sent", _result(), 304, 409, 410, 416),
        },
        "/api/jobs/{job_id}/retry": {
            "post": _of_a_job("Queue a failed job again", answer(of("Job"), 202), 409, changes=True),
        },
        "/api/status": {"get": _route("Whether the queue is held, and how long it is", answer(of("Status")))},
        "/api/openapi.json": {"get": _route("This document", answer({"type": "object"}), away=False)},
    }  # fmt: skip


def _of_operators() -> dict[str, Any]:
    choice = [_query("status", STATUS), _query("code", CODE), _query("owner", PLAIN_TEXT)]
    minutes = _query("minutes", {"type": "integer", "minimum": 1, "maximum": MOST_MINUTES})
    return {
        "/api/admin/stats": {"get": _admin("As `convertq stats --json`", answer(of("Stats")))},
        "/api/admin/servers": {
            "get": _admin("As `convertq servers --json`", answer(fixed(servers=listed(of("Server"))))),
        },
        "/api/admin/jobs": {
            "get": _admin(
                "As `convertq list --json`, page by page",
                answer(fixed(jobs=listed(of("AdminJob")), next={"anyOf": [ID, {"type": "null"}]})), 400,
                parameters=[*choice, *PAGE],
            ),
        },
        "/api/admin/history": {
            "get": _admin(
                "The last minutes, one by one", answer(fixed(minutes=listed(of("Minute")))), 400, parameters=[minutes]
            ),
        },
        "/api/admin/breaker": {"get": _admin("As `convertq breaker --json`", answer(of("Breaker")))},
        "/api/admin/breaker/{action}": {
            "post": _admin(
                "Open or close the breaker by hand", answer(of("MovedBreaker")), changes=True,
                parameters=[{"name": "action", "in": "path", "required": True, "schema": {"enum": ["open", "close"]}}],
            ),
        },
        "/api/admin/reclaim": {
            "post": _admin(
                "Give jobs of lost workers back to the queue", answer(fixed(reclaimed=WHOLE, given_up=WHOLE)),
                changes=True,
            ),
        },
        "/api/admin/retry-failed": {
            "post": _admin(
                "Queue failed jobs again: by id, or all that have this code, owner, or are dead letters",
                answer(fixed(queued=WHOLE, skipped=WHOLE)), 400, 413, changes=True,
                body={"required": False, "content": {JSON: {"schema": of("Retries")}}},
            ),
        },
        "/metrics": {
            "get": _admin("Prometheus, of the whole cluster", _answered(200, "text", "text/plain", {"type": "string"})),
        },
    }  # fmt: skip


def _probes() -> dict[str, Any]:
    return {
        "/health": {"get": _route("This process lives", answer(fixed(status={"const": "alive"})), away=False)},
        "/ready": {"get": _route("The database and its schema are fine", answer(fixed(status={"const": "ready"})))},
    }


# -- the parts of a route --

PAGE_BEFORE: Schema = {"anyOf": [ID, TIME, EMPTY]}


def _query(name: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": {"anyOf": [schema, EMPTY]}}


def _header(name: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": required, "schema": schema}


PAGE = [
    _query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
    {"name": "before", "in": "query", "required": False, "schema": PAGE_BEFORE,
     "description": "where the page begins: `next` of the page before, or a time"},
]  # fmt: skip
JOB_ID = {"name": "job_id", "in": "path", "required": True, "schema": ID}
SAME_ORIGIN = _header("Sec-Fetch-Site", {"const": "same-origin"}, required=True) | {
    "description": "a browser sends it by itself; the Origin of this site does as well"
}


def _route(
    summary: str, answers: dict[str, Any], *errors: int, parameters: Any = (), body: Any = None,
    security: Any = VISITOR, changes: bool = False, away: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """`changes`: it needs a word on where it comes from; `away`: it needs the database."""
    statuses = [*errors, *([403] if changes else []), *([503] if away else [])]
    route = {
        "summary": summary,
        "security": security,
        "parameters": [*parameters, *([SAME_ORIGIN] if changes else [])],
        "responses": {**answers, **{str(status): _error(status) for status in sorted(set(statuses))}},
    }
    return {**route, "requestBody": body} if body else route


def _of_a_job(summary: str, answers: dict[str, Any], *errors: int, changes: bool = False) -> dict[str, Any]:
    return _route(summary, answers, 403, 404, *errors, parameters=[JOB_ID], changes=changes)


def _admin(summary: str, answers: dict[str, Any], *errors: int, **more: Any) -> dict[str, Any]:
    """404: the routes of operators do not exist where no token is set."""
    return _route(summary, answers, 401, 404, *errors, security=OPERATOR, **more)


def _error(status: int) -> dict[str, Any]:
    if status == 304:
        return {"description": "nothing has changed"}
    return {"description": ERRORS[status], "content": {JSON: {"schema": of("Error")}}}


def answer(schema: Schema, status: int = 200, meaning: str = "as asked") -> dict[str, Any]:
    return _answered(status, meaning, JSON, schema)


def _answered(status: int, meaning: str, media: str, schema: Schema) -> dict[str, Any]:
    return {str(status): {"description": meaning, "content": {media: {"schema": schema}}}}


def _result() -> dict[str, Any]:
    xml: Schema = {"type": "string"}
    whole = _answered(200, "the file, as an attachment", "application/xml", xml)
    return {**whole, **_answered(206, "a part of it", "application/xml", xml)}


def _submitted() -> dict[str, Any]:
    """With links: whoever reads the contract sees where the id leads."""
    routes = ("get", ""), ("get", "/events"), ("get", "/progress"), ("get", "/download"), ("post", "/retry")
    links = {path.strip("/") or "job": _link(method, f"/api/jobs/{{job_id}}{path}") for method, path in routes}
    found = {**answer(of("Job"), 201, "a new job"), **answer(of("Job"), 200, "the job that it joined")}
    return {status: {**said, "links": links} for status, said in found.items()}


def _link(method: str, path: str) -> dict[str, Any]:
    there = f"#/paths/{path.replace('/', '~1')}/{method}"
    return {"operationRef": there, "parameters": {"job_id": "$response.body#/id"}}


def _upload(mappings: tuple[str, ...]) -> dict[str, Any]:
    fields = {
        "file": {"type": "string", "format": "binary", "description": "a PDF of at most MAX_UPLOAD_BYTES"},
        "mapping": {"type": "string", "enum": [*mappings, ""], "default": mappings[0]},
        "priority": {"type": "integer", "minimum": PRIORITY[0], "maximum": PRIORITY[-1], "default": 0},
        "pretty": {"type": "string", "enum": ["1", "0", "true", "false", ""], "default": "1"},
    }
    form = {"type": "object", "properties": fields, "required": ["file"]}
    encoding = {"file": {"contentType": "application/pdf"}}
    return {"required": True, "content": {"multipart/form-data": {"schema": form, "encoding": encoding}}}
