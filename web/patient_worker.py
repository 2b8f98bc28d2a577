"""gunicorn's threaded worker, with an end to every wait for a client.

A thread per request, because a request mostly waits: for an upload's next piece, or for a download to be taken. Of
itself gunicorn limits only the wait for a request's first byte; a client that then says nothing, or a byte at a time,
would hold its thread for ever, and enough of them the whole process.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any

from convertq.web.unreadable import as_bytes, status_and_words
from gunicorn import util  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

PIECE = 64 * 1024
HEAD = 16 * 1024  # bytes of a request's head that are waited for; a longer one is read as it comes
SILENCE = 20.0  # s that a client may say, or take, nothing
HEADERS_WITHIN = 20.0  # s for all of a request's head
LINGER = 2.0  # s in which a client that is still sending may read its answer before the connection is cut
REQUEST_WITHIN = (
    900.0  # s for all of it, where nothing is known of its size; else by the slowest upload that is served:
)
FIRST_SECONDS, SLOWEST = 30.0, 32 * 1024  # s, and then bytes a second
LAST_WORDS = 5.0  # s in which a request that was cut off may still be answered


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """The main thread accepts and watches; `handle` and `handle_request` run on the request's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadlines: dict[TConn, float] = {}
        self._cut: set[TConn] = set()

    def accept(self, listener: socket.socket) -> None:
        """Who has said nothing yet waits without a thread; gunicorn would have one wait for each of them."""
        try:
            sock, client = listener.accept()
        except OSError:
            return  # the client is gone again, or no descriptor is free: the next look tells
        self.nr_conns += 1
        conn = TConn(self.cfg, sock, client, listener.getsockname())
        conn.timeout = time.monotonic() + SILENCE
        self.pending_conns.append(conn)
        self.poller.register(sock, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def on_pending_socket_readable(self, conn: TConn, client: socket.socket) -> None:
        if has_said_all(conn.sock):
            super().on_pending_socket_readable(conn, client)

    def on_client_socket_readable(self, conn: TConn, client: socket.socket) -> None:
        if has_said_all(conn.sock):
            super().on_client_socket_readable(conn, client)

    def enqueue_req(self, conn: TConn) -> None:
        limit = struct.pack("ll", int(SILENCE), 0)
        with contextlib.suppress(OSError):  # the client is gone already: reading says so
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._deadlines[conn] = time.monotonic() + HEADERS_WITHIN
        super().enqueue_req(conn)

    def handle(self, conn: TConn) -> Any:
        """On the request's thread, which lingers here: gunicorn would do it on the main thread, and accept nobody."""
        kept = super().handle(conn)
        if not kept:
            linger(conn.sock)
        return kept

    def handle_request(self, req: Any, conn: TConn) -> Any:
        """Its head is read."""
        self._deadlines[conn] = time.monotonic() + time_for(req)
        return super().handle_request(req, conn)

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: Exception) -> None:
        """Only the kind of mistake is logged: a malformed header or address may hold a secret."""
        status, words = status_and_words(exc)
        if status == 500:
            self.log.exception("Error handling request")
        else:
            self.log.warning("Unreadable request (%s)", type(exc).__name__)
        with contextlib.suppress(OSError):
            util.write_nonblock(client, as_bytes(status, words))

    def finish_request(self, conn: TConn, fs: Future[Any]) -> None:
        self._deadlines.pop(conn, None)
        self._cut.discard(conn)
        super().finish_request(conn, fs)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """When told to stop, gunicorn would wait its whole grace for a browser that keeps its connection open."""
        if not self.alive:
            for conn in [*self.keepalived_conns, *self.pending_conns]:
                conn.timeout = 0.0
        super().wait_for_and_dispatch_events(min(timeout, 1.0 if self.alive else 0.1))

    def murder_pending(self) -> None:
        """Once a second. A socket that is shut ends the wait of whoever reads from it: first that, then all."""
        for conn in islice(self.pending_conns, max(self.nr_conns - self.worker_connections + 1, 0)):
            conn.timeout = 0.0  # so many that nobody else could come in: those who have been silent longest go
        super().murder_pending()
        now = time.monotonic()
        for conn in [conn for conn, deadline in list(self._deadlines.items()) if deadline < now]:
            is_cut = conn in self._cut
            with contextlib.suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR if is_cut else socket.SHUT_RD)
            self._cut.add(conn)
            self._deadlines[conn] = now + LAST_WORDS


def time_for(req: Any) -> float:
    """An upload may take longer the larger it says to be; one that drips comes to an end all the same."""
    announced = next((value for name, value in req.headers if name == "CONTENT-LENGTH"), "")
    return FIRST_SECONDS + int(announced) / SLOWEST if announced.isdigit() and int(announced) else REQUEST_WITHIN


def has_said_all(sock: socket.socket) -> bool:
    """Whether a request's head is there, for a thread to read; else it is looked at again when there is more.

    A thread that waited for the rest of a head could be kept by whoever sends one letter at a time.
    """
    if sock.family == socket.AF_UNIX:  # a proxy's, which waits for heads itself; and there more cannot be waited for
        return True
    try:
        head = sock.recv(HEAD, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        wanted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        # woken without what was waited for: nothing more will come
        is_whole = b"\r\n\r\n" in head or len(head) == HEAD or len(head) < wanted
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 if is_whole else len(head) + 1)
    except OSError:
        return True  # gone: the thread finds that out as well
    return is_whole


def linger(sock: socket.socket) -> None:
    """Closing while bytes arrive would reset the connection, and the answer with it."""
    deadline = time.monotonic() + LINGER
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while (left := deadline - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(PIECE):
                break
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
