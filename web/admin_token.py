"""The operators' routes: they exist only where ADMIN_TOKEN is set, and require it."""

from __future__ import annotations

import hmac

from convertq.queue.queue_events import Operator, operator_with_token
from convertq.web.context import web
from convertq.web.http_error import NO_SUCH_PAGE, HttpError
from flask import request


def require_admin() -> None:
    if web().config.admin_token is None:
        raise HttpError(404, NO_SUCH_PAGE)
    if not is_operator():
        raise HttpError(
            401, "this route requires the operator's token: Authorization: Bearer …",
            headers={"WWW-Authenticate": 'Bearer realm="convertq"'},
        )  # fmt: skip


def operator() -> Operator:
    """Who sends the request, which require_admin has let through."""
    return operator_with_token(web().config.admin_token or "")


def is_operator() -> bool:
    """Whether the request carries the operator's token."""
    token = web().config.admin_token
    if token is None:
        return False
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    # compare_digest takes the same time wherever the two differ, so that the token cannot be guessed byte by byte.
    is_equal = hmac.compare_digest(sent.strip().encode("utf-8", "surrogatepass"), token.encode())
    return scheme.lower() == "bearer" and is_equal
