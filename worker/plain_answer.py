"""The usual answer, read straight from the socket: 200, of a known length, not encoded. Any other is http.client's.

http.client parses a head as it would a letter's, which was a third of a call whose answer comes at once.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Mapping

PEEK = 8192
HEAD = re.compile(rb"HTTP/1\.1 200 [ -~]*\r\n((?:[!-9;-~]+:[ -~\t]*\r\n)+)\r\n")
ENCODED = ("transfer-encoding", "content-encoding")


class PlainAnswer:
    status = 200

    def __init__(self, taken_from: socket.socket, headers: Mapping[str, str], length: int) -> None:
        self._socket, self._headers, self.missing = taken_from, headers, length

    def header(self, name: str) -> str | None:
        return self._headers.get(name.lower())

    def read(self, size: int) -> bytes:
        if not self.missing:
            return b""
        piece = self._socket.recv(min(size, self.missing))
        if not piece:
            raise http.client.IncompleteRead(b"", self.missing)
        self.missing -= len(piece)
        return piece


def take_plain_answer(arrives_at: socket.socket) -> PlainAnswer | None:
    """None, and nothing is taken: TLS, another form, or a head that has not come as a whole."""
    if type(arrives_at) is not socket.socket:
        return None
    head = HEAD.match(arrives_at.recv(PEEK, socket.MSG_PEEK))
    if head is None:
        return None
    lines = [line.partition(":") for line in head[1].decode("ascii").split("\r\n")[:-1]]
    headers = {name.lower(): value.strip() for name, _, value in lines}
    length = headers.get("content-length", "")
    is_plain = length.isdecimal() and not any(name in headers for name in ENCODED)
    if not is_plain or "close" in headers.get("connection", "").lower() or len(headers) < len(lines):
        return None
    arrives_at.recv(head.end())
    return PlainAnswer(arrives_at, headers, int(length))
