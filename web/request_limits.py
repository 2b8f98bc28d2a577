"""The limits of one request, as WSGI middleware: how long a client may send nothing, how slowly a body may arrive, and
what happens to a body that the application did not read.

gunicorn itself limits the time for the headers of a request and for an idle connection (its setting `keepalive`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import gevent
from gevent.lock import Semaphore
from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]

SOCKET_TIMEOUT_SECONDS = 20.0  # Without a byte from the client, or without room for one piece of the answer.
#: A body may take BODY_SECONDS, and another second for each MIN_BYTES_PER_SECOND that have arrived.
BODY_SECONDS, MIN_BYTES_PER_SECOND = 30.0, 32 * 1024
DRAIN_SECONDS = 2.0  # For the rest of a body after the request was answered.
DRAIN_BYTES = 64 * 1024

TURN_SECONDS = 1e-6
_turns = Semaphore(4)


def take_turn() -> None:
    """Lets at most four large uploads read a piece before gevent polls all sockets again.

    Clients that send faster than this process reads would otherwise fill every iteration of gevent's loop: with
    `sleep(0)` it runs fifty of them before it polls again, and answers of the database would wait for seconds. A
    timer, however short, expires only after the sockets were polled.
    """
    with _turns:
        gevent.sleep(TURN_SECONDS)


class MalformedBody(OSError):
    """The body is not what its Transfer-Encoding says."""


class RequestLimits:
    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["gunicorn.socket"].settimeout(SOCKET_TIMEOUT_SECONDS)
        body = environ["wsgi.input"] = LimitedBody(environ["wsgi.input"])
        return DrainingResponse(self._application(environ, start_response), body)


class LimitedBody:
    """The body of a request. Only the time spent waiting for the client counts against its limit."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._read_bytes, self._waited_seconds = 0, 0.0

    def read(self, size: int = -1, /) -> bytes:
        """Raises TimeoutError when it arrives too slowly, and OSError when it ends too early or is malformed."""
        remaining_seconds = BODY_SECONDS + self._read_bytes / MIN_BYTES_PER_SECOND - self._waited_seconds
        started = time.monotonic()
        try:
            with gevent.Timeout(max(remaining_seconds, 0.0), TimeoutError()):
                data: bytes = self._source.read(size)
        except ParseException as error:
            raise MalformedBody(str(error)) from error
        finally:
            self._waited_seconds += time.monotonic() - started
        self._read_bytes += len(data)
        return data

    def drain(self) -> None:
        """Reads what the application left, so that the next request on this connection is found.

        The timeout must raise an Exception: gunicorn then knows that the body failed, and closes the connection. A
        silent timeout would leave a chunked body half read, and the rest of it would be taken for the next request.
        """
        with contextlib.suppress(OSError, ParseException), gevent.Timeout(DRAIN_SECONDS, TimeoutError()):
            while self._source.read(DRAIN_BYTES):
                gevent.sleep(0)


class DrainingResponse:
    """The application's answer. When all of it has been sent, the rest of the request's body is read."""

    def __init__(self, pieces: Iterable[bytes], body: LimitedBody) -> None:
        self._pieces, self._body = pieces, body

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            yield piece
            gevent.sleep(0)

    def close(self) -> None:
        try:
            if hasattr(self._pieces, "close"):
                self._pieces.close()
        finally:
            self._body.drain()
