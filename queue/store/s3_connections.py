"""The connections of one process to the storage: kept, one for each request that is under way at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from ssl import SSLContext
from urllib.parse import SplitResult

from convertq.queue.http_connection import KeptConnection
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context

CONNECT_TIMEOUT_SECONDS = 5.0
#: Storage closes idle connections after some seconds. A request that meets the close is sent again.
KEEP_SECONDS = 5.0
MAX_KEPT = 64  # in a web process; a worker uses one


class Connections:
    """It may be made before a fork: each process opens its own."""

    def __init__(self, base: SplitResult) -> None:
        context = _tls_context() if base.scheme == "https" else None
        self._connect: Callable[[], HTTPConnection] = partial(_connect, base, context)
        self._owner = 0  # the process that they belong to
        self._idle: list[KeptConnection] = []
        self._used: set[KeptConnection] = set()

    def take(self) -> KeptConnection:
        if self._owner != os.getpid():
            self._owner, self._idle, self._used = os.getpid(), [], set()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = KeptConnection(self._connect, KEEP_SECONDS)
        self._used.add(connection)
        return connection

    def give_back(self, connection: KeptConnection) -> None:
        self._used.discard(connection)
        if not connection.is_kept:
            return
        if len(self._idle) < MAX_KEPT:
            self._idle.append(connection)
        else:
            connection.close()

    def abort(self) -> None:
        """Called from another thread: every request under way fails at once."""
        for connection in list(self._used):
            connection.abort()


def _tls_context() -> SSLContext:
    """Made once, because the certificates take memory and time."""
    context = create_urllib3_context()
    context.load_default_certs()
    return context


def _connect(base: SplitResult, context: SSLContext | None) -> HTTPConnection:
    host, timeout = str(base.hostname), CONNECT_TIMEOUT_SECONDS
    connection: HTTPConnection
    if context is not None:
        connection = HTTPSConnection(host, base.port or 443, timeout=timeout, ssl_context=context)
    else:
        connection = HTTPConnection(host, base.port or 80, timeout=timeout)
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection
