"""The connection to the gateway: kept from job to job, and ended from another thread when a call must end.

Client CPU in ms per call at gateways of 0, 10 and 100 ms (20 KB up, 2 KB down): a session of requests 0.92, 1.34, 1.41;
a pool of urllib3 0.31, 0.75, 0.72; http.client 0.17, 0.48, 0.47; this 0.11, 0.36, 0.36. A whole job costs about 1.2.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator

from convertq.worker.gateway.answer import Answer
from convertq.worker.gateway.endpoint import Endpoint
from urllib3.connection import HTTPConnection

#: A connection is kept for the job that follows at once. Gateways close idle ones after some seconds, and a request
#: that meets the close on its way costs the job an attempt: so none is ever that old.
KEEP_SECONDS = 1.0


class GatewayConnection:
    """Made after the fork. One request at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection: HTTPConnection | None = None
        self._used_at = 0.0

    @contextlib.contextmanager
    def exchange(self, headers: bytes, body: Iterable[bytes], timeout_seconds: float) -> Iterator[Answer]:
        """Sends a request and yields its answer; `timeout_seconds` bounds each wait for the network.

        The connection is closed unless the answer was read to its end.
        """
        answer: Answer | None = None
        try:
            opened = self._open(timeout_seconds)
            # A gateway that answers before it has read the whole upload may then close: its answer counts.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                _send(opened, headers, body)
            answer = Answer(opened)
            yield answer
        finally:
            if answer is None or not answer.leaves_connection_usable:
                self.close()
            self._used_at = time.monotonic()

    def _open(self, timeout_seconds: float) -> socket.socket:
        """Returns the kept connection, unless it is too old, or readable: closed, or with bytes after an answer."""
        connection = self._connection
        if connection is None or time.monotonic() - self._used_at >= KEEP_SECONDS or not connection.is_connected:
            self.close()
            connection = self._connection = self._endpoint.connect(timeout_seconds)
        opened: socket.socket = connection.sock
        opened.settimeout(timeout_seconds)
        return opened

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def abort(self) -> None:
        """Called from another thread: a read or write under way fails at once. Shuts the TCP socket, below any TLS."""
        if self._connection is not None and (opened := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _send(to: socket.socket, headers: bytes, body: Iterable[bytes]) -> None:
    """The headers and the first piece of the body go out together."""
    pieces = iter(body)
    to.sendall(headers + b"\r\n\r\n" + next(pieces, b""))
    for piece in pieces:
        to.sendall(piece)
