"""What is asked of a client's socket itself: is a head there, how much has come; and a goodbye that is heard."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

PIECE = 64 * 1024
HEAD = 16 * 1024  # bytes of a request's head that are waited for; a longer one is read as it comes
LINGER = 2.0  # s in which a client that is still sending may read its answer before the connection is cut
BYTES_RECEIVED = struct.Struct("128xQ")  # in Linux' struct tcp_info


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
    close(sock)


def close(sock: socket.socket) -> None:
    """Nothing more is wanted of it, and nothing is on its way."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def received(sock: socket.socket) -> int | None:
    """Bytes, since it was opened; None where nobody counts: a proxy on this host, by a socket with a path."""
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int(BYTES_RECEIVED.unpack_from(told)[0])
    except (OSError, struct.error):
        return None
