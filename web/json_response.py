"""Documents and errors as JSON: times in UTC, ids as text, and one form for all errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from convertq.web.http_error import HttpError
from flask import Response, request

ZERO = timedelta()
PROBLEM = "application/problem+json"


def json_text(document: Any) -> str:
    return json.dumps(document, default=_to_json)


def json_response(document: Any, status: int = 200, content_type: str = "application/json") -> Response:
    return Response(json_text(document) + "\n", status, content_type=content_type)


def error_response(error: HttpError) -> Response:
    if asks_for_problem():
        response = json_response(problem_document(error), error.status, PROBLEM)
    else:
        response = json_response(error_document(error), error.status)
    response.headers.extend(error.headers)
    return response


def asks_for_problem() -> bool:
    """Only a client that names the media type gets a problem document: `*/*` means the default form."""
    return any(kind.lower() == PROBLEM and quality > 0 for kind, quality in request.accept_mimetypes)


def error_document(error: HttpError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message}}


def problem_document(error: HttpError) -> dict[str, Any]:
    """RFC 9457. `about:blank` means that the title is the phrase of the HTTP status."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.message,
        "code": error.code,
    }


def conditional(answer: Response, environ: dict[str, Any], **range_of: Any) -> None:
    """Turns the answer into 304 or 206 where the request's headers ask for that. Raises HttpError for 412."""
    if environ.get("HTTP_IF_MATCH", "").strip() == "*":  # `*` is any version; werkzeug takes it for an ETag.
        environ = {name: value for name, value in environ.items() if name != "HTTP_IF_MATCH"}
    answer.make_conditional(environ, **range_of)
    if answer.status_code == 412:
        raise HttpError(412, "the resource has changed: If-Match names another version")


def _to_json(value: Any) -> Any:
    if not isinstance(value, datetime):
        return str(value)
    return (value if value.utcoffset() == ZERO else value.astimezone(UTC)).isoformat()
