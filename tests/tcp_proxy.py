"""A bad network in tests: a TCP proxy that passes, swallows, refuses or cuts, as it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import NamedTuple, Self

from convertq.embedded.postgres import free_port

CHUNK = 1 << 16


class Packet(NamedTuple):
    """What a client sent at once, and over which connection: the client's port."""

    connection: int
    data: bytes


class TcpProxy:
    """Between a client and `port` on this host. What it does can change while connections are open."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = free_port()
        self.packets: list[Packet] = []  # that came from clients
        self._passing = threading.Event()
        self._passing.set()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(self, *exc: object) -> None:
        self.refuse()

    def listen(self) -> None:
        """Takes connections and passes everything on."""
        self._passing.set()
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def swallow(self) -> None:
        """Takes connections and bytes, and passes nothing on: silence, without an end that TCP would notice."""
        self._passing.clear()

    def cut(self) -> None:
        """Ends the open connections; new ones are taken. What was swallowed never arrives."""
        with self._lock:
            ending, self._open = self._open, set()
        for connection in ending:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Ends the open connections and takes no new one."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self._note(client)
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                self._note(server)
                back = threading.Thread(target=self._pass_on, args=(server, client), daemon=True)
                back.start()
                self._pass_on(client, server)
                back.join()

    def _note(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        """One direction. Bytes taken while swallowing are lost, so the stream is broken from then on."""
        broken = False
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if sink.getpeername()[1] == self._target:
                    self.packets.append(Packet(source.getpeername()[1], data))
                broken = broken or not self._passing.is_set()
                if not broken:
                    sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
