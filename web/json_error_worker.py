"""gunicorn's gevent worker, with a JSON answer to malformed HTTP.

A malformed request never reaches the application; `handle_error` is the only place that can answer it.
"""

from __future__ import annotations

import contextlib
import socket
from http import HTTPStatus
from typing import Any

import gevent
from convertq.web.http_error import INTERNAL_ERROR, HttpError
from convertq.web.json_response import error_document, json_text
from convertq.web.request_limits import DRAIN_BYTES, DRAIN_SECONDS
from convertq.web.security_headers import HEADERS
from gunicorn.http import errors  # type: ignore[import-untyped]
from gunicorn.workers.ggevent import GeventWorker  # type: ignore[import-untyped]

HTTP_ERRORS: dict[type[Exception], HttpError] = {
    errors.LimitRequestLine: HttpError(414, "the URL is too long"),
    errors.LimitRequestHeaders: HttpError(431, "the request has too many headers, or headers that are too long"),
    errors.ExpectationFailed: HttpError(417, "the only supported expectation is 100-continue"),
    errors.UnsupportedTransferCoding: HttpError(501, "unsupported transfer encoding of the request body"),
}
MALFORMED_REQUEST = HttpError(400, "malformed HTTP request")
INTERNAL = HttpError(500, INTERNAL_ERROR)


class JsonErrorWorker(GeventWorker):  # type: ignore[misc]
    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """Only the kind of the error is logged: a malformed header or URL may contain a secret."""
        if isinstance(exc, gevent.GreenletExit):  # The process stops, and the grace period is over.
            return
        error = http_error_of(exc)
        if error is INTERNAL:
            self.log.exception("Error handling request")
        else:
            self.log.warning("Malformed request (%s)", type(exc).__name__)
        with contextlib.suppress(OSError), gevent.Timeout(DRAIN_SECONDS, TimeoutError()):
            client.sendall(http_response(error))
            # Closing the socket while bytes arrive would reset the connection, and the client would lose the answer.
            client.shutdown(socket.SHUT_WR)
            while client.recv(DRAIN_BYTES):
                gevent.sleep(0)


def http_error_of(error: BaseException) -> HttpError:
    for kind, http_error in HTTP_ERRORS.items():
        if isinstance(error, kind):
            return http_error
    is_about_response = isinstance(error, errors.InvalidResponseHeader | errors.InvalidResponseHeaderName)
    return MALFORMED_REQUEST if isinstance(error, errors.ParseException) and not is_about_response else INTERNAL


def http_response(error: HttpError) -> bytes:
    body = json_text(error_document(error)) + "\n"
    headers = {
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        **HEADERS,
    }
    status_line = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"
    lines = [status_line, *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()
