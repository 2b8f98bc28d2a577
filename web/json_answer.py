"""Documents and errors as JSON: times in UTC, ids as text, one shape for everything that went wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from convertq.web.refusal import Refusal
from flask import Response

ZERO = timedelta()


def json_text(document: Any) -> str:
    return json.dumps(document, default=_plain)


def json_answer(document: Any, status: int = 200) -> Response:
    return Response(json_text(document) + "\n", status, content_type="application/json")


def error_answer(refusal: Refusal) -> Response:
    answer = json_answer({"error": {"code": refusal.code, "message": refusal.message}}, refusal.status)
    answer.headers.extend(refusal.headers)
    return answer


def conditional(answer: Response, environ: dict[str, Any], **range_of: Any) -> None:
    """Makes it 304 or 206 where the request asks for that; 412 is refused as everything else is."""
    if environ.get("HTTP_IF_MATCH", "").strip() == "*":  # any version; werkzeug looks for one of that name
        environ = {name: value for name, value in environ.items() if name != "HTTP_IF_MATCH"}
    answer.make_conditional(environ, **range_of)
    if answer.status_code == 412:
        raise Refusal(412, "it has changed: If-Match names another version")


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return str(value)
    return (value if value.utcoffset() == ZERO else value.astimezone(UTC)).isoformat()
