"""Sends an answer down a socket: whole, or spoilt by a fault."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from io import BufferedIOBase, BytesIO
from pathlib import Path

from convertq.gateway.answer import Answer

PIECE = 64 * 1024
DRIPS_PER_SECOND = 10
LINGER_SECONDS = 10.0

Pause = Callable[[float], object]


def send_whole(answer: Answer, target: BufferedIOBase) -> None:
    for piece in pieces(answer, PIECE):
        target.write(piece)


def send_dripping(answer: Answer, target: BufferedIOBase, bytes_per_second: float, pause: Pause) -> None:
    size = max(1, int(bytes_per_second / DRIPS_PER_SECOND))
    for piece in pieces(answer, size):
        target.write(piece)
        target.flush()
        pause(len(piece) / bytes_per_second)


def send_truncated(answer: Answer, target: BufferedIOBase) -> None:
    """Half of the announced length, and then the end."""
    left = answer.length // 2
    for piece in pieces(answer, PIECE):
        target.write(piece[:left])
        left -= min(left, len(piece))


def pieces(answer: Answer, size: int) -> Iterator[bytes]:
    with BytesIO(answer.body) if isinstance(answer.body, bytes) else Path(answer.body).open("rb") as file:
        while piece := file.read(size):
            yield piece


def reset(connection: socket.socket) -> None:
    """Closing with a linger time of zero sends RST in place of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def linger(connection: socket.socket) -> None:
    """Reads on after an early answer: closing now would reset the client before it has read the answer."""
    deadline = time.monotonic() + LINGER_SECONDS
    try:
        connection.shutdown(socket.SHUT_WR)
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(min(left, 2.0))
            if not connection.recv(PIECE):
                return
    except OSError:
        return
