"""What is no HTTP, or too much of it: it never reaches the application, and is answered as everything else is."""

from __future__ import annotations

from http import HTTPStatus

from convertq.web.guard import HEADERS
from convertq.web.json_answer import json_text
from convertq.worker.errors import Code
from gunicorn.http import errors  # type: ignore[import-untyped]

SAID: dict[type[Exception], tuple[int, str]] = {
    errors.LimitRequestLine: (414, "the address is too long"),
    errors.LimitRequestHeaders: (431, "the request has too many headers, or too long ones"),
    errors.ExpectationFailed: (417, "nothing but 100-continue can be expected"),
    errors.UnsupportedTransferCoding: (501, "the body is sent in a way that is not known here"),
}
NO_HTTP = (400, "this is no HTTP request that can be read")
A_BUG = (500, "something went wrong here; it has been noted")


def status_and_words(error: Exception) -> tuple[int, str]:
    for kind, said in SAID.items():
        if isinstance(error, kind):
            return said
    return NO_HTTP if isinstance(error, errors.ParseException) else A_BUG


def as_bytes(status: int, words: str) -> bytes:
    body = json_text({"error": {"code": Code.UNKNOWN, "message": words}}) + "\n"
    head = {
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        **HEADERS,
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in head.items())]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()
