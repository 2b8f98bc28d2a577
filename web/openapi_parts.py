"""What a route of the contract is made of: parameters, answers with their headers, errors, bodies."""

from __future__ import annotations

from typing import Any

from convertq.web.asked import MAX_LIMIT
from convertq.web.openapi_schemas import ID, TEXT, TIME, Schema, of
from convertq.web.upload import PRIORITY

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
    412: "If-Match names another version",
    413: "TOO_LARGE",
    415: "the body is of another type",
    416: "the file has no such range",
    422: "a field's value is not allowed, such as an unknown mapping",
    429: "this visitor has as many unfinished jobs as allowed",
    503: "the database is not reachable just now; Retry-After says when to ask again",
    507: "IO_ERROR: the file could not be stored",
}
#: headers that an error never comes without
SAID_WITH = {401: ("WWW-Authenticate",), 416: ("Content-Range",), 429: ("Retry-After",), 503: ("Retry-After",)}
ETAG = "ETag"

PAGE_BEFORE: Schema = {"anyOf": [ID, TIME, EMPTY]}


def query(name: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": {"anyOf": [schema, EMPTY]}}


def header(name: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": required, "schema": schema}


PAGE = [
    query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
    {"name": "before", "in": "query", "required": False, "schema": PAGE_BEFORE,
     "description": "where the page begins: `next` of the page before, or a time"},
]  # fmt: skip
VERSIONS = [header("If-None-Match", TEXT), header("If-Match", TEXT)]
JOB_ID = {"name": "job_id", "in": "path", "required": True, "schema": ID}
SAME_ORIGIN = header("Sec-Fetch-Site", {"const": "same-origin"}, required=True) | {
    "description": "a browser sends it by itself; the Origin of this site does as well"
}


def route(
    summary: str, answers: dict[str, Any], *errors: int, parameters: Any = (), body: Any = None,
    security: Any = VISITOR, changes: bool = False, away: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """`changes`: it needs a word on where it comes from; `away`: it needs the database."""
    statuses = [*errors, *([403] if changes else []), *([503] if away else [])]
    described = {
        "summary": summary,
        "security": security,
        "parameters": [*parameters, *([SAME_ORIGIN] if changes else [])],
        "responses": {**answers, **{str(status): _error(status) for status in sorted(set(statuses))}},
    }
    return {**described, "requestBody": body} if body else described


def of_a_job(
    summary: str, answers: dict[str, Any], *errors: int, parameters: Any = (), changes: bool = False
) -> dict[str, Any]:
    return route(summary, answers, 403, 404, *errors, parameters=[JOB_ID, *parameters], changes=changes)


def admin(summary: str, answers: dict[str, Any], *errors: int, **more: Any) -> dict[str, Any]:
    """404: the routes of operators do not exist where no token is set."""
    return route(summary, answers, 401, 404, *errors, security=OPERATOR, **more)


def _error(status: int) -> dict[str, Any]:
    if status == 304:
        return {"description": "nothing has changed"}
    headers = _headers(SAID_WITH[status]) if status in SAID_WITH else {}
    return {"description": ERRORS[status], "content": {JSON: {"schema": of("Error")}}, **headers}


def answer(
    schema: Schema, status: int = 200, meaning: str = "as asked", headers: tuple[str, ...] = ()
) -> dict[str, Any]:
    return answered(status, meaning, JSON, schema, headers)


def answered(status: int, meaning: str, media: str, schema: Schema, headers: tuple[str, ...] = ()) -> dict[str, Any]:
    return {str(status): {"description": meaning, "content": {media: {"schema": schema}}, **_headers(headers)}}


def _headers(names: tuple[str, ...]) -> dict[str, Any]:
    """What an answer never comes without."""
    return {"headers": {name: {"required": True, "schema": TEXT} for name in names}} if names else {}


def result() -> dict[str, Any]:
    with_all = (ETAG, "Accept-Ranges", "Content-Disposition")
    whole = answered(200, "the file, as an attachment", "application/xml", TEXT, with_all)
    return {**whole, **answered(206, "a part of it", "application/xml", TEXT, (*with_all, "Content-Range"))}


def submitted() -> dict[str, Any]:
    """With links: whoever reads the contract sees where the id leads."""
    routes = ("get", ""), ("get", "/events"), ("get", "/progress"), ("get", "/download"), ("post", "/retry")
    links = {path.strip("/") or "job": _link(method, f"/api/jobs/{{job_id}}{path}") for method, path in routes}
    place = ("Location",)
    found = {
        **answer(of("Job"), 201, "a new job", place),
        **answer(of("Job"), 200, "the job that it joined", place),
    }
    return {status: {**said, "links": links} for status, said in found.items()}


def _link(method: str, path: str) -> dict[str, Any]:
    there = f"#/paths/{path.replace('/', '~1')}/{method}"
    return {"operationRef": there, "parameters": {"job_id": "$response.body#/id"}}


def upload(mappings: tuple[str, ...]) -> dict[str, Any]:
    fields = {
        "file": {"type": "string", "format": "binary", "description": "a PDF of at most MAX_UPLOAD_BYTES"},
        "mapping": {"type": "string", "enum": [*mappings, ""], "default": mappings[0]},
        "priority": {"type": "integer", "minimum": PRIORITY[0], "maximum": PRIORITY[-1], "default": 0},
        "pretty": {"type": "string", "enum": ["1", "0", "true", "false", ""], "default": "1"},
    }
    form = {"type": "object", "properties": fields, "required": ["file"]}
    encoding = {"file": {"contentType": "application/pdf"}}
    return {"required": True, "content": {"multipart/form-data": {"schema": form, "encoding": encoding}}}
