"""Who a visitor is: a random id in a cookie, which owns what was uploaded with it and opens nothing else."""

from __future__ import annotations

from uuid import UUID, uuid4

from flask import Response, g, request

COOKIE = "owner_session_id"
MAX_AGE = 400 * 86400  # s; browsers keep no cookie for longer


def owner() -> str:
    """Of this request; a visitor without a cookie, or with one that was not made here, gets a new one."""
    if "owner" not in g:
        known = _canonical(request.cookies.get(COOKIE, ""))
        g.owner, g.is_new = known or str(uuid4()), known is None
    return str(g.owner)


def keep_owner(response: Response) -> Response:
    if g.get("is_new"):
        response.set_cookie(
            COOKIE, g.owner, max_age=MAX_AGE, httponly=True, samesite="Lax", secure=request.is_secure, path="/"
        )
    return response


def _canonical(text: str) -> str | None:
    """Only a UUIDv4 as it was made here: names such as `cli`, which own jobs too, are nobody's session."""
    try:
        known = UUID(text)
    except ValueError:
        return None
    return text if known.version == 4 and str(known) == text else None
