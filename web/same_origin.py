"""Requests that change state are accepted only from the pages of this site (protection against CSRF)."""

from __future__ import annotations

from convertq.queue.errors import Code
from convertq.web.http_error import HttpError
from flask import request

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def require_same_origin() -> None:
    """Either header is enough; where both are sent, both must name this site."""
    if request.method in SAFE_METHODS:
        return
    origin, fetch_site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    is_named = origin is not None or fetch_site is not None
    if not is_named or not _is_own_origin(origin) or fetch_site not in (None, "same-origin"):
        raise HttpError(
            403,
            "requests that change state need this site's Origin or Sec-Fetch-Site: same-origin",
            Code.FORBIDDEN,
        )


def _is_own_origin(origin: str | None) -> bool:
    """The scheme is compared only where TLS is certain: a proxy does not always pass it on."""
    if origin is None:
        return True
    schemes = ("https",) if request.is_secure else ("https", "http")
    return origin.lower() in {f"{scheme}://{request.host.lower()}" for scheme in schemes if request.host}
