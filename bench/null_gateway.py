"""A gateway that costs next to nothing: answers any upload with 2 KB of XML, and remembers who asked, and when.

    python -m bench.null_gateway          # prints "listening on http://127.0.0.1:PORT"

POST /reset?hold=0|1&delay=SECONDS forgets what was seen; GET /seen is a line per upload (id, monotonic seconds).
While held it keeps every answer back until POST /open. One thread and one epoll; keep-alive and close are both spoken.
"""

from __future__ import annotations

import contextlib
import heapq
import re
import select
import socket
import time
from urllib.parse import parse_qs, urlsplit

from bench.documents import answer

CHUNK = 1 << 18
LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
CORRELATION = re.compile(rb"\r\nx-correlation-id: *([0-9a-f-]{36})", re.IGNORECASE)
CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


class Client:
    """One connection: its head as far as it has come, then only how much of the body is missing."""

    __slots__ = ("arrived", "closes", "head", "missing", "socket")

    def __init__(self, opened: socket.socket) -> None:
        self.socket, self.head, self.missing, self.arrived, self.closes = opened, b"", -1, 0.0, False


class NullGateway:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._clients: dict[int, Client] = {}
        self._seen: list[tuple[bytes, float]] = []
        self._held: list[Client] | None = None
        self._delay = 0.0
        self._due: list[tuple[float, int, Client]] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            for descriptor, _ in self._epoll.poll(self._time_to_next()):
                if client := self._clients.get(descriptor):
                    self._read(client)
                else:
                    self._accept()
            while self._due and self._due[0][0] <= time.monotonic():
                self._answer(heapq.heappop(self._due)[2])

    def _time_to_next(self) -> float:
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            opened, _ = self._listener.accept()
            opened.setblocking(False)
            self._clients[opened.fileno()] = Client(opened)
            self._epoll.register(opened, select.EPOLLIN)

    def _read(self, client: Client) -> None:
        try:
            data = client.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._close(client)
        elif client.missing >= 0:
            client.missing -= len(data)
            if client.missing <= 0:
                self._received(client)
        else:
            self._read_head(client, data)

    def _read_head(self, client: Client, data: bytes) -> None:
        client.arrived = client.arrived or time.monotonic()
        client.head += data
        end = client.head.find(b"\r\n\r\n")
        if end >= 0:
            body = len(client.head) - end - 4
            client.head = client.head[: end + 2]
            length = LENGTH.search(client.head)
            client.closes = CLOSES.search(client.head) is not None
            client.missing = (int(length[1]) if length else 0) - body
            if client.missing <= 0:
                self._received(client)

    def _received(self, client: Client) -> None:
        if not client.head.startswith(b"POST /process"):
            self._control(client)
            return
        found = CORRELATION.search(client.head)
        self._seen.append((found[1] if found else b"-", client.arrived))
        if self._held is not None:
            self._held.append(client)
        elif self._delay:
            heapq.heappush(self._due, (client.arrived + self._delay, len(self._seen), client))
        else:
            self._answer(client)

    def _answer(self, client: Client) -> None:
        found = CORRELATION.search(client.head)
        self._send(client, answer(found[1] if found else b"-" * 36), b"application/xml")

    def _control(self, client: Client) -> None:
        asked = urlsplit(client.head.split(b" ", 2)[1].decode())
        body = b""
        match asked.path:
            case "/reset":
                options = parse_qs(asked.query)
                self._held = [] if options.get("hold") == ["1"] else None
                self._delay = float(options.get("delay", ["0"])[0])
                self._seen = []
            case "/open":
                waiting, self._held = self._held or [], None
                body = b"%.6f" % time.monotonic()
                for one in waiting:
                    self._answer(one)
            case "/count":
                body = b"%d" % len(self._seen)
            case "/seen":
                body = b"".join(b"%b %.6f\n" % seen for seen in self._seen)
        client.socket.settimeout(30)  # of any size: every client here reads it at once
        self._send(client, body, b"text/plain")
        if client.socket.fileno() >= 0:
            client.socket.setblocking(False)

    def _send(self, client: Client, body: bytes, kind: bytes) -> None:
        ending = b"close" if client.closes else b"keep-alive"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: %b\r\n\r\n"
        closes, client.head, client.missing, client.arrived = client.closes, b"", -1, 0.0
        try:
            client.socket.sendall(head % (kind, len(body), ending) + body)
        except OSError:  # the client has gone away
            closes = True
        if closes:
            self._close(client)

    def _close(self, client: Client) -> None:
        self._clients.pop(client.socket.fileno(), None)
        client.socket.close()  # which also takes it out of the epoll


def main() -> None:
    gateway = NullGateway()
    print(f"listening on {gateway.url}", flush=True)
    gateway.serve()


if __name__ == "__main__":
    main()
