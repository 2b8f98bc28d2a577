"""Who a visitor is: a random id in a cookie, which owns the jobs that were submitted with it."""

from __future__ import annotations

from uuid import UUID, uuid4

from flask import Response, g, request

COOKIE = "owner_session_id"
MAX_AGE_SECONDS = 400 * 86400  # Browsers keep no cookie for longer.


def owner() -> str:
    """The owner of this request. A visitor without a cookie, or with one that was not made here, gets a new id."""
    if "owner" not in g:
        known = _parse_session_id(request.cookies.get(COOKIE, ""))
        g.owner, g.is_new_owner = known or str(uuid4()), known is None
    return str(g.owner)


def set_session_cookie(response: Response) -> Response:
    if g.get("is_new_owner"):
        response.set_cookie(
            COOKIE, g.owner, max_age=MAX_AGE_SECONDS, httponly=True, samesite="Lax", secure=request.is_secure, path="/"
        )
    return response


def _parse_session_id(text: str) -> str | None:
    """Accepts only UUIDv4 in the form that is made here: other owners, such as `cli`, are not sessions."""
    try:
        known = UUID(text)
    except ValueError:
        return None
    return text if known.version == 4 and str(known) == text else None
