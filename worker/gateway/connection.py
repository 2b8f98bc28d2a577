"""The connection to the gateway: kept from job to job, and ended from another thread when a call must end.

Client CPU in ms per call at gateways of 0, 10 and 100 ms (20 KB up, 2 KB down): a session of requests 0.92, 1.34, 1.41;
a pool of urllib3 0.31, 0.75, 0.72; http.client 0.17, 0.48, 0.47; this 0.11, 0.36, 0.36. A whole job costs about 1.2.
"""

from __future__ import annotations

import contextlib
import select
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
    """Made after the fork. One request at a time; `timeout_seconds` bounds each wait for the network."""

    _poll: select.poll  # for the socket of `_connection`

    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        self._endpoint, self._timeout_seconds = endpoint, timeout_seconds
        self._connection: HTTPConnection | None = None
        self._used_at = 0.0

    @contextlib.contextmanager
    def exchange(self, request: Iterable[bytes]) -> Iterator[Answer]:
        """Sends a request, piece by piece, and yields its answer.

        The connection is closed unless the answer was read to its end.
        """
        answer: Answer | None = None
        try:
            opened = self._open()
            # A gateway that answers before it has read the whole upload may then close: its answer counts.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in request:
                    opened.sendall(piece)
            answer = Answer(opened)
            yield answer
        finally:
            if answer is None or not answer.leaves_connection_usable:
                self.close()
            self._used_at = time.monotonic()

    def _open(self) -> socket.socket:
        if self._connection is None or not self._is_usable(self._connection):
            self.close()
            self._connection = self._endpoint.connect(self._timeout_seconds)
            self._poll = select.poll()
            self._poll.register(self._connection.sock, select.POLLIN)
        opened: socket.socket = self._connection.sock
        return opened

    def _is_usable(self, connection: HTTPConnection) -> bool:
        """False if it is closed, too old, or readable: then the gateway has closed it, or has sent another answer."""
        is_young = time.monotonic() - self._used_at < KEEP_SECONDS
        return is_young and connection.sock is not None and not self._poll.poll(0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def abort(self) -> None:
        """Called from another thread: a read or write under way fails at once. Shuts the TCP socket, below any TLS."""
        if self._connection is not None and (opened := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)
