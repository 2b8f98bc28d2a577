"""The reference gateway as a service: listens, hands each connection to a thread, stops cleanly."""

from __future__ import annotations

import logging
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import Any

from convertq.gateway.converter_pool import ConverterPool
from convertq.gateway.faults import Faults
from convertq.gateway.handler import Handler

logger = logging.getLogger(__name__)

DEFAULT_MAX_BYTES = 52_428_800
DEFAULT_CONVERTERS = 4
DEFAULT_SECONDS = 120.0
STOP_GRACE_SECONDS = 5.0
RESETTING = 1  # the first number of SO_LINGER, set by delivery.reset


class GatewayServer(ThreadingMixIn, TCPServer):
    """What the handlers share."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    folder: Path
    pool: ConverterPool
    faults: Faults
    allow_fault_header: bool
    max_bytes: int

    def __init__(self, address: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.stopping = threading.Event()
        self.idle = threading.Condition()
        self.working = 0
        self.connections: set[socket.socket] = set()
        super().__init__(address, Handler)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with self.idle:
            self.working += 1
        try:
            yield
        finally:
            with self.idle:
                self.working -= 1
                self.idle.notify_all()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        with suppress(OSError):
            if request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER) == RESETTING:
                self.close_request(request)  # without the FIN that would come first
                return
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, ConnectionError):
            logger.info("a client went away before it had its answer")
        else:
            logger.error("a request failed", exc_info=error)


class Gateway:
    """A gateway in this process: `with Gateway() as gateway: ... gateway.url`."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        faults: Iterable[str] = (),
        allow_fault_header: bool = False,
        converters: int = DEFAULT_CONVERTERS,
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        rules = Faults(tuple(faults))
        self.server = GatewayServer((host, port))
        self.server.pool = ConverterPool(converters, seconds)
        self.server.faults = rules
        self.server.allow_fault_header = allow_fault_header
        self.server.max_bytes = max_bytes
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.1,), name="gateway")

    @property
    def url(self) -> str:
        host, port = self.server.server_address[:2]
        name = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def start(self) -> None:
        self.spool = tempfile.TemporaryDirectory(prefix="convertq-gateway-", ignore_cleanup_errors=True)
        self.server.folder = Path(self.spool.name)
        self.thread.start()

    def stop(self) -> None:
        """Running requests get a few seconds to finish; then everything ends."""
        self.server.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        with self.server.idle:
            self.server.idle.wait_for(lambda: self.server.working == 0, STOP_GRACE_SECONDS)
        self.server.pool.close()
        for connection in list(self.server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.spool.cleanup()

    def __enter__(self) -> Gateway:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
