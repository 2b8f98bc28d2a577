"""The way between a host and its database in the storm: it passes, delays, swallows, refuses or cuts."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal, Self

from convertq.embedded.postgres import free_port

CHUNK = 1 << 16
#: pass: as if it were not there. stall: what is sent is acknowledged, and arrives only when the mode changes.
#: swallow: what is sent is acknowledged and never arrives; a connection that lost bytes stays silent forever.
#: refuse: no new connections.
Mode = Literal["pass", "stall", "swallow", "refuse"]


class Network:
    """Listens on `port` and passes to `target`, a port of this machine; `cut` ends what is open."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.mode: Mode = "pass"
        self._changed = threading.Condition()
        self._listener: socket.socket | None = None
        self._open: set[Connection] = set()
        self._closing = False

    def set_mode(self, mode: Mode) -> None:
        with self._changed:
            self.mode = mode
            self._changed.notify_all()
        if mode == "refuse":
            self._stop_listening()
        elif self._listener is None:
            self._listen()

    def cut(self) -> int:
        """Ends every open connection, on both sides; returns how many there were."""
        with self._changed:
            connections = list(self._open)
        for connection in connections:
            connection.end()
        return len(connections)

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._stop_listening()
        self.cut()

    # -- for its connections --

    def lets_through(self) -> bool:
        """Waits while the network stalls; False: these bytes are lost."""
        with self._changed:
            self._changed.wait_for(lambda: self.mode != "stall" or self._closing)
            return self.mode != "swallow" and not self._closing

    def wait_for_pass(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.mode == "pass" or self._closing)

    def forget(self, connection: Connection) -> None:
        with self._changed:
            self._open.discard(connection)

    # -- listening --

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _stop_listening(self) -> None:
        if self._listener:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                connection = Connection(self, client)
                with self._changed:
                    self._open.add(connection)
                threading.Thread(target=connection.serve, daemon=True).start()


class Connection:
    """One client and, once the network lets it through, its connection to the target."""

    def __init__(self, network: Network, client: socket.socket) -> None:
        self._network = network
        self._ends = [client]

    def serve(self) -> None:
        client = self._ends[0]
        try:
            if not self._network.lets_through():
                while client.recv(CHUNK):
                    pass  # answered by nothing at all
                return
            upstream = socket.create_connection(("127.0.0.1", self._network.target), timeout=5)
            upstream.settimeout(None)
            self._ends.append(upstream)
            for end in self._ends:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pump, args=(upstream, client), daemon=True).start()
            self._pump(client, upstream)
        except OSError:
            pass  # the target is down, or the connection was cut
        finally:
            self._network.forget(self)
            self.end()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        lost = False
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                lost = lost or not self._network.lets_through()
                if not lost:
                    sink.sendall(data)
        if lost or not self._network.lets_through():
            self._network.wait_for_pass()  # nor does the other side hear, until then, that it is over
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
