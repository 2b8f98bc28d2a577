"""Connections to the gateway that can be ended from beside them: which socket a call uses, and shutting it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

import requests
import urllib3.connection
import urllib3.connectionpool
from requests.adapters import HTTPAdapter


def watched_session(note: Callable[[socket.socket], None]) -> requests.Session:
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Watched(note))
    return session


def shut(*opened: socket.socket) -> None:
    """Whoever reads or writes there is told so at once. Of the TCP socket, below any TLS."""
    for one in opened:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(one, socket.SHUT_RDWR)


class _Watched(HTTPAdapter):
    """Tells which socket a call uses."""

    def __init__(self, note: Callable[[socket.socket], None]) -> None:
        self._note = note
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        note = self._note

        class Plain(urllib3.connection.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                note(self.sock)

        class Tls(urllib3.connection.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                note(self.sock)

        class PlainPool(urllib3.connectionpool.HTTPConnectionPool):
            ConnectionCls = Plain

        class TlsPool(urllib3.connectionpool.HTTPSConnectionPool):
            ConnectionCls = Tls

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": TlsPool}
