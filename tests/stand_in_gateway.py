"""The gateway of the tests: a real HTTP server that answers as scripted and records every request."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

from convertq.embedded.postgres import free_port

from tests.gateway_behaviours import Behaviour, Exchange, ok, status
from tests.uploads import Upload, read_upload
from tests.waiting import WAIT_SECONDS


@dataclass
class Request:
    """What one request brought; `at` and `answered_at` are of the monotonic clock."""

    method: str
    path: str
    headers: dict[str, str]
    correlation_id: str
    connection: int = 0  # the client's port: the same for requests over one connection
    upload: Upload = field(default_factory=Upload)
    at: float = field(default_factory=time.monotonic)
    answered_at: float | None = None


class StandInGateway:
    """Answers each POST by the script of its correlation id, else the common script, else `default`.

    `requests` has the POSTs, in the order in which their uploads ended; `probes` has the GETs,
    which are answered by `health`.
    """

    def __init__(self) -> None:
        self.default: Behaviour = ok()
        self.health: Behaviour = status(200)
        self.requests: list[Request] = []
        self.probes: list[Request] = []
        self.path = "/process"
        self.port = free_port()
        self._common: deque[Behaviour] = deque()
        self._by_id: defaultdict[str, deque[Behaviour]] = defaultdict(deque)
        self._recorded = threading.Condition()
        self._server: GatewayServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, *behaviours: Behaviour) -> None:
        """For the next requests, one each, for any sender."""
        with self._recorded:
            self._common.extend(behaviours)

    def script_for(self, correlation_id: object, *behaviours: Behaviour) -> None:
        """For the next requests with this correlation id, one each."""
        with self._recorded:
            self._by_id[str(correlation_id)].extend(behaviours)

    def requests_of(self, correlation_id: object) -> list[Request]:
        with self._recorded:
            return [request for request in self.requests if request.correlation_id == str(correlation_id)]

    def wait_for(self, count: int, timeout: float = WAIT_SECONDS) -> list[Request]:
        """The recorded POSTs, once there are `count`; a held answer is recorded before it is sent."""
        return self._wait(self.requests, count, timeout)

    def wait_for_probes(self, count: int, timeout: float = WAIT_SECONDS) -> list[Request]:
        return self._wait(self.probes, count, timeout)

    def start(self) -> Self:
        """Listen, again on the same port after a `stop`."""
        self._server = GatewayServer(self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Refuse connections from now on, and cut those that are open."""
        if self._server:
            self._server.end()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def next_behaviour(self, correlation_id: str) -> Behaviour:
        with self._recorded:
            for script in (self._by_id.get(correlation_id), self._common):
                if script:
                    return script.popleft()
            return self.default

    def record(self, request: Request) -> None:
        with self._recorded:
            (self.probes if request.method == "GET" else self.requests).append(request)
            self._recorded.notify_all()

    def _wait(self, records: list[Request], count: int, timeout: float) -> list[Request]:
        with self._recorded:
            if not self._recorded.wait_for(lambda: len(records) >= count, timeout):
                raise AssertionError(f"{len(records)} of {count} requests within {timeout:g} s: {records}")
            return list(records)


class GatewayServer(ThreadingHTTPServer):
    """One run of the listener; a later run of the same gateway is another object."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, gateway: StandInGateway) -> None:
        self.gateway = gateway
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", gateway.port), GatewayHandler)

    def opened(self, connection: socket.socket) -> None:
        self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        self._open.discard(connection)

    def end(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()
        for connection in self._open.copy():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is what many tests are about: say nothing."""


class GatewayHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: GatewayServer

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._serve(self.server.gateway.health)

    def do_POST(self) -> None:
        correlation_id = self.headers.get("X-Correlation-ID", "")
        known = urlsplit(self.path).path == self.server.gateway.path  # a proxy is asked for the whole address
        self._serve(self.server.gateway.next_behaviour(correlation_id) if known else status(404))

    def _serve(self, behaviour: Behaviour) -> None:
        request = self._request()
        try:
            if behaviour.reads_upload:
                read_upload(self.headers, self.rfile, request.upload)
            else:
                self.close_connection = True
        finally:
            self.server.gateway.record(request)
        behaviour.act(Exchange(self, request.correlation_id, self.server.closing))
        request.answered_at = time.monotonic()

    def _request(self) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        correlation_id, connection = headers.get("x-correlation-id", ""), self.client_address[1]
        return Request(self.command, self.path, headers, correlation_id, connection)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the record is in `requests`."""
