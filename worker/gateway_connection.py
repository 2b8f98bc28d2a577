"""The way to the gateway: one session per process, a connection kept from job to job and ended from beside it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests
import urllib3.connection
import urllib3.connectionpool
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict

#: s. A connection is kept for the job that follows at once. Gateways close idle ones after some seconds, and a request
#: that meets the close on its way costs the job an attempt: so none is ever that old.
KEEP = 1.0


@dataclass(frozen=True)
class Route:
    """What `requests` would work out for each call: proxies, certificates, rights in a netrc or in the URL, default
    headers. Worked out once, before the fork: it is most of the memory that a session takes."""

    url: str
    headers: Mapping[str, str]
    settings: Mapping[str, Any]


def find_route(url: str) -> Route:
    session = requests.Session()
    prepared = session.prepare_request(requests.Request("POST", url))
    settings = session.merge_environment_settings(url, {}, True, None, None)
    return Route(str(prepared.url), dict(prepared.headers), dict(settings))


class Gateway:
    """Made after the fork. A call goes straight to the adapter, which has the connection."""

    def __init__(self, route: Route, headers: Mapping[str, str]) -> None:
        self._connection: urllib3.connection.HTTPConnection | None = None
        self._used = 0.0
        self._adapter = _Watched(self._note)
        self._url, self._headers, self._settings = route.url, {**route.headers, **headers}, route.settings

    def post(self, headers: Mapping[str, str], body: Iterator[bytes], timeout: float) -> requests.Response:
        if time.monotonic() - self._used > KEEP:
            self.rest()
        request = requests.PreparedRequest()
        request.method, request.url, request.hooks = "POST", self._url, {}
        request.headers = CaseInsensitiveDict({**self._headers, **headers})
        request.body = body  # type: ignore[assignment]  # sent piece by piece, as urllib3 takes it
        return self._adapter.send(request, timeout=timeout, **self._settings)

    def is_done_with(self, response: requests.Response) -> None:
        """Whatever was not read of it ends its connection; else that is kept."""
        response.close()
        self._used = time.monotonic()

    def rest(self) -> None:
        """Nothing follows at once: the gateway gets its connection back."""
        if self._connection is not None:
            self._connection.close()

    def shut(self) -> None:
        if self._connection is not None:
            shut(self._connection)

    def _note(self, connection: urllib3.connection.HTTPConnection) -> None:
        self._connection = connection


def watched_session(note: Callable[[urllib3.connection.HTTPConnection], None]) -> requests.Session:
    """Tells which connections it opens."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Watched(note))
    return session


def shut(*connections: urllib3.connection.HTTPConnection) -> None:
    """Whoever reads or writes there is told so at once. Of the TCP socket, below any TLS."""
    for connection in connections:
        if (opened := connection.sock) is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(opened, socket.SHUT_RDWR)


class _Watched(HTTPAdapter):
    def __init__(self, note: Callable[[urllib3.connection.HTTPConnection], None]) -> None:
        self._note = note
        self._pool: Any = None
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        note = self._note

        class Plain(urllib3.connection.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                note(self)

        class Tls(urllib3.connection.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                note(self)

        class PlainPool(urllib3.connectionpool.HTTPConnectionPool):
            ConnectionCls = Plain

        class TlsPool(urllib3.connectionpool.HTTPSConnectionPool):
            ConnectionCls = Tls

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": TlsPool}

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """One gateway, one pool: looked up once."""
        if self._pool is None:
            self._pool = super().get_connection_with_tls_context(*args, **kwargs)
        return self._pool

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        """Without cookies and redirects, which have no place between a worker and its gateway."""
        response = requests.Response()
        response.status_code, response.headers, response.raw = resp.status, CaseInsensitiveDict(resp.headers), resp
        response.request, response.connection = req, self
        return response
