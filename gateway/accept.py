"""Decides by the Accept header what a client gets."""

from __future__ import annotations

from convertq.gateway.answer import Refusal

XML = "application/xml"
JSON = "application/json"
OUTPUTS = {XML: "xml", JSON: "json"}


def output_for(accept: str | None, offers: tuple[str, ...]) -> str:
    """The offered type that the client likes best; the first offer wins a draw."""
    wanted = ranges(accept or "*/*")
    best = max(offers, key=lambda offer: quality(offer, wanted))
    if quality(best, wanted) <= 0:
        raise Refusal(406, f"this gateway answers with {' or '.join(offers)} here")
    return best


def ranges(accept: str) -> dict[str, float]:
    wanted = {}
    for part in accept.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        weights = [piece[2:] for piece in parameters if piece.startswith("q=")]
        wanted[media] = weight(weights[0]) if weights else 1.0
    return wanted


def weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def quality(offer: str, wanted: dict[str, float]) -> float:
    """The most exact range counts, so that `application/json;q=0, */*` refuses JSON."""
    names = [offer, "application/*", "*/*"]
    if offer == XML:
        names.insert(1, "text/xml")
    return next((wanted[name] for name in names if name in wanted), 0.0)
