"""What every answer says to the browser, and which requests it must not have been tricked into."""

from __future__ import annotations

from convertq.web.refusal import Refusal
from convertq.worker.errors import Code
from flask import Response, request

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: nothing from elsewhere, nothing written into a page, no frame around it
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # not no-referrer: with it a form of our own page would come with the Origin `null`
    "Referrer-Policy": "same-origin",
}


def add_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if request.endpoint != "static":
        response.headers.setdefault("Cache-Control", "no-store")
    return response


def refuse_other_sites() -> None:
    """A request that changes something comes from our own page, and says so; what it says must agree."""
    if request.method in SAFE:
        return
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    said = [origin is None or _is_ours(origin), site is None or site == "same-origin"]
    if (origin is None and site is None) or not all(said):
        raise Refusal(
            403,
            "a request that changes something must come from this site: it needs its Origin, "
            "or Sec-Fetch-Site: same-origin",
            Code.FORBIDDEN,
        )


def _is_ours(origin: str) -> bool:
    """By host and port, and by the scheme where TLS is known of: a proxy does not always pass it on."""
    schemes = ("https",) if request.is_secure else ("https", "http")
    return origin.lower() in {f"{scheme}://{request.host.lower()}" for scheme in schemes if request.host}
