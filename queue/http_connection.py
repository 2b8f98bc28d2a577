"""A kept HTTP/1.1 connection, for the requests that one process sends to one address.

Client CPU in ms per call at gateways of 0, 10 and 100 ms (20 KB up, 2 KB down): a session of requests 0.92, 1.34, 1.41;
a pool of urllib3 0.31, 0.75, 0.72; http.client 0.17, 0.48, 0.47; this 0.11, 0.36, 0.36. A whole job costs about 1.2.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterable

from convertq.queue.http_answer import Answer
from urllib3.connection import HTTPConnection


class KeptConnection:
    """Made after the fork. One request at a time; the timeout of its socket bounds each wait for the network."""

    _poll: select.poll  # for the socket of `_connection`

    def __init__(self, connect: Callable[[], HTTPConnection], keep_seconds: float) -> None:
        """An idle connection is not used again after `keep_seconds`."""
        self._connect, self.keep_seconds = connect, keep_seconds
        self._connection: HTTPConnection | None = None
        self._used_at = 0.0

    def begin(self, request: Iterable[bytes], *, is_head: bool = False, timeout_seconds: float | None = None) -> Answer:
        """Sends a request, piece by piece. The caller reads the answer, and calls `end` in any case."""
        opened = self._open()
        if timeout_seconds is not None:
            opened.settimeout(timeout_seconds)
        try:
            for piece in request:
                opened.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # A server that answers before it has read the whole upload may then close: its answer counts.
        return Answer(opened, is_head=is_head)

    def end(self, answer: Answer | None) -> None:
        """The connection is closed unless the answer was read to its end."""
        if answer is None or not answer.leaves_connection_usable:
            self.close()
        self._used_at = time.monotonic()

    @property
    def is_kept(self) -> bool:
        return self._connection is not None and self._connection.sock is not None

    def _open(self) -> socket.socket:
        if self._connection is None or not self._is_usable(self._connection):
            self.close()
            self._connection = self._connect()
            self._poll = select.poll()
            self._poll.register(self._connection.sock, select.POLLIN)
        opened: socket.socket = self._connection.sock
        return opened

    def _is_usable(self, connection: HTTPConnection) -> bool:
        """False if it is closed, too old, or readable: then the server has closed it, or has sent another answer."""
        is_young = time.monotonic() - self._used_at < self.keep_seconds
        return is_young and connection.sock is not None and not self._poll.poll(0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def abort(self) -> None:
        """Called from another thread: a read or write under way fails at once. Shuts the TCP socket, below any TLS."""
        if self._connection is not None and (opened := self._connection.sock) is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)
