"""The operator's routes: they exist only where ADMIN_TOKEN is set, and open only to who sends it."""

from __future__ import annotations

import hmac

from convertq.web.context import web
from convertq.web.refusal import Refusal
from convertq.worker.errors import Code
from flask import request


def require_admin() -> None:
    """Before every request for an operator's route."""
    token = web().config.admin_token
    if token is None:
        raise Refusal(404, "there is nothing here")
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    # compared whole and as bytes, so that the time it takes says nothing of how much was right
    right = hmac.compare_digest(sent.strip().encode("utf-8", "surrogatepass"), token.encode())
    if scheme.lower() != "bearer" or not right:
        raise Refusal(
            401, "this needs the operator's token: Authorization: Bearer …", Code.FORBIDDEN,
            {"WWW-Authenticate": 'Bearer realm="convertq"'},
        )  # fmt: skip
