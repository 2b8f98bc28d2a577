"""The way to the gateway: one session per process, a connection kept from job to job and ended from beside it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests
import urllib3
import urllib3.connection
import urllib3.connectionpool
from convertq.worker.plain_answer import PlainAnswer, take_plain_answer
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
    target: str
    headers: Mapping[str, str]
    settings: Mapping[str, Any]
    is_direct: bool  # no proxy in between


def find_route(url: str) -> Route:
    session = requests.Session()
    prepared = session.prepare_request(requests.Request("POST", url))
    settings = session.merge_environment_settings(url, {}, True, None, None)
    headers = {"Host": _host(str(prepared.url)), **prepared.headers}
    del headers["Content-Length"]  # of an empty body
    is_direct = not requests.utils.select_proxy(str(prepared.url), settings["proxies"])
    return Route(str(prepared.url), prepared.path_url, headers, dict(settings), is_direct)


def _host(url: str) -> str:
    parsed = urllib3.util.parse_url(url)
    is_usual = parsed.port in (None, {"http": 80, "https": 443}.get(str(parsed.scheme)))
    return str(parsed.host) if is_usual else f"{parsed.host}:{parsed.port}"


class ParsedAnswer:
    def __init__(self, raw: urllib3.BaseHTTPResponse | http.client.HTTPResponse) -> None:
        self._raw, self.status = raw, raw.status

    def header(self, name: str) -> str | None:
        return self._raw.headers.get(name)

    def read(self, size: int) -> bytes:
        return bytes(self._raw.read(size))


Answer = ParsedAnswer | PlainAnswer
Close = Callable[[], None]  # of an answer: whatever was not read of it ends its connection; else that is kept


class Gateway:
    """Made after the fork. `requests` opens the connection with the first call; those that follow at once go over it
    straight, for what is done anew for each call in the layers above takes longer than a claim."""

    def __init__(self, route: Route, headers: Mapping[str, str]) -> None:
        self._connection: urllib3.connection.HTTPConnection | None = None
        self._used = 0.0
        self._adapter = _Watched(self._note)
        self._route, self._headers = route, {**route.headers, **headers}
        head = [f"POST {route.target} HTTP/1.1", *(f"{name}: {value}" for name, value in self._headers.items())]
        self._head = "\r\n".join(head).encode("latin-1")

    def post(self, headers: Mapping[str, str], body: Iterator[bytes], timeout: float) -> tuple[Answer, Close]:
        connection = self._connection
        if connection and connection.is_connected and time.monotonic() - self._used < KEEP and self._route.is_direct:
            return self._post_again(connection, headers, body, timeout)
        self.rest()
        return self._post_first(headers, body, timeout)

    def _post_first(self, headers: Mapping[str, str], body: Iterator[bytes], timeout: float) -> tuple[Answer, Close]:
        request = requests.PreparedRequest()
        request.method, request.url, request.hooks = "POST", self._route.url, {}
        request.headers = CaseInsensitiveDict({**self._headers, **headers})
        request.body = body  # type: ignore[assignment]  # sent piece by piece, as urllib3 takes it
        response = self._adapter.send(request, timeout=timeout, **self._route.settings)
        response.raw.decode_content = True

        def close() -> None:
            response.close()
            self._used = time.monotonic()

        return ParsedAnswer(response.raw), close

    def _post_again(
        self,
        connection: urllib3.connection.HTTPConnection,
        headers: Mapping[str, str],
        body: Iterator[bytes],
        timeout: float,
    ) -> tuple[Answer, Close]:
        try:
            connection.sock.settimeout(timeout)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it hung up
                self._send(connection.sock, headers, body)
            return self._take_plain(connection) or self._parse(connection)
        except BaseException:
            connection.close()
            raise

    def _take_plain(self, connection: urllib3.connection.HTTPConnection) -> tuple[Answer, Close] | None:
        answer = take_plain_answer(connection.sock)
        if answer is None:
            return None

        def close() -> None:
            if answer.missing:
                connection.close()
            self._used = time.monotonic()

        return answer, close

    def _parse(self, connection: urllib3.connection.HTTPConnection) -> tuple[Answer, Close]:
        response = _Response(connection.sock, method="POST")

        def close() -> None:
            if response.will_close or not response.isclosed():
                connection.close()
            response.close()
            self._used = time.monotonic()

        response.begin()
        if response.getheader("Content-Encoding"):  # although it was asked for none
            decoded = urllib3.HTTPResponse(response, dict(response.headers), response.status, preload_content=False)
            return ParsedAnswer(decoded), close
        return ParsedAnswer(response), close

    def _send(self, to: socket.socket, headers: Mapping[str, str], body: Iterator[bytes]) -> None:
        """The head goes out in one piece with what follows it."""
        more = "".join(f"\r\n{name}: {value}" for name, value in headers.items())
        to.sendall(self._head + more.encode("latin-1") + b"\r\n\r\n" + next(body))
        for piece in body:
            to.sendall(piece)

    def rest(self) -> None:
        """Nothing follows at once: the gateway gets its connection back."""
        if self._connection is not None:
            self._connection.close()

    def shut(self) -> None:
        if self._connection is not None:
            shut(self._connection)

    def _note(self, connection: urllib3.connection.HTTPConnection) -> None:
        self._connection = connection


class _Response(http.client.HTTPResponse):
    def read(self, amt: int | None = None) -> bytes:
        piece = super().read(amt)
        if self.length and not piece:
            raise http.client.IncompleteRead(b"", self.length)
        return piece


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
