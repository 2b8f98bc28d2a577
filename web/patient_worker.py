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

from convertq.web.client_socket import close, has_said_all, linger, received
from convertq.web.unreadable import as_bytes, status_and_words
from gunicorn import util  # type: ignore[import-untyped]
from gunicorn.http.body import LengthReader  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

SILENCE = 20.0  # s that a client may say, or take, nothing
HEADERS_WITHIN = 20.0  # s for all of a request's head
REQUEST_WITHIN = 900.0  # s for all of one that brings no body
FIRST_SECONDS, SLOWEST = 30.0, 32 * 1024  # s, and then bytes a second, of one that brings one
LAST_CALL = 1.0  # s that who has just come in has to say what it wants, once the process is told to stop
LAST_WORDS = 5.0  # s in which a request that was cut off may still be answered


class PatientWorker(ThreadWorker):  # type: ignore[misc]
    """The main thread accepts and watches; `handle` and `handle_request` run on the request's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadlines: dict[TConn, float] = {}
        self._uploads: dict[TConn, tuple[Any, int]] = {}  # the request, and what had come when its body began
        self._cut: set[TConn] = set()
        self._closes_at: float | None = None

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
        """A kept connection; once it says something, it has as long as a new one to say it all."""
        if has_said_all(conn.sock):
            super().on_client_socket_readable(conn, client)
            return
        self.keepalived_conns.remove(conn)
        conn.timeout = time.monotonic() + SILENCE
        self.pending_conns.append(conn)
        self.poller.modify(client, selectors.EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def enqueue_req(self, conn: TConn) -> None:
        limit = struct.pack("ll", int(SILENCE), 0)
        with contextlib.suppress(OSError):  # the client is gone already: reading says so
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        super().enqueue_req(conn)

    def handle(self, conn: TConn) -> Any:
        """On the request's thread, which lingers here: gunicorn would do it on the main thread, and accept nobody."""
        self._deadlines[conn] = time.monotonic() + HEADERS_WITHIN
        kept = super().handle(conn)
        if not kept:
            linger(conn.sock) if is_more_to_come(conn) else close(conn.sock)
        return kept

    def handle_request(self, req: Any, conn: TConn) -> Any:
        """Its head is read."""
        brings_body = not is_read(req)
        self._deadlines[conn] = time.monotonic() + (FIRST_SECONDS if brings_body else REQUEST_WITHIN)
        if brings_body:
            self._uploads[conn] = req, received(conn.sock) or 0
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
        self._uploads.pop(conn, None)
        self._cut.discard(conn)
        super().finish_request(conn, fs)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """When told to stop, gunicorn would wait its whole grace for a browser that keeps its connection open.

        A connection on which nothing has been asked yet may be of a visitor whose request is on its way.
        """
        if not self.alive:
            self._closes_at = self._closes_at or time.monotonic() + LAST_CALL
            for conn in self.keepalived_conns:
                conn.timeout = 0.0
            for conn in self.pending_conns:
                conn.timeout = min(conn.timeout, self._closes_at)
        super().wait_for_and_dispatch_events(min(timeout, 1.0 if self.alive else 0.1))

    def murder_pending(self) -> None:
        """Once a second. A socket that is shut ends the wait of whoever reads from it: first that, then all."""
        for conn in islice(self.pending_conns, max(self.nr_conns - self.worker_connections + 1, 0)):
            conn.timeout = 0.0  # so many that nobody else could come in: those who have been silent longest go
        super().murder_pending()
        now = time.monotonic()
        for conn in [conn for conn, deadline in list(self._deadlines.items()) if deadline + self._earned(conn) < now]:
            is_cut = conn in self._cut
            with contextlib.suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR if is_cut else socket.SHUT_RD)
            self._cut.add(conn)
            self._uploads.pop(conn, None)
            self._deadlines[conn] = now + LAST_WORDS

    def _earned(self, conn: TConn) -> float:
        """Seconds more, by what has come: a large upload may take long, and one that drips may not."""
        if conn not in self._uploads:
            return 0.0
        req, before = self._uploads[conn]
        come = received(conn.sock)
        # all is there: what takes long now is our own work
        return REQUEST_WITHIN if come is None or is_read(req) else (come - before) / SLOWEST


def is_read(req: Any) -> bool:
    """Whether its body has been read to the end, or it has none."""
    reader = req.body.reader
    return bool(reader.length == 0 if isinstance(reader, LengthReader) else getattr(reader, "parser", True) is None)


def is_more_to_come(conn: TConn) -> bool:
    """A client that is still sending hears its answer only if it is listened to."""
    req = conn.parser.mesg if conn.parser else None
    return req is None or not is_read(req)
