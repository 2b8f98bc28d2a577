"""A gateway that costs next to nothing: answers any upload with 2 KB of XML, and remembers who asked, and when.

    python -m bench.null_gateway          # prints "listening on http://127.0.0.1:PORT"

POST /reset?hold=0|1&delay=SECONDS&capacity=CALLS&per_megabyte=SECONDS&spread=SIGMA forgets what was seen, and POST
/change with all but the first does not. An answer takes `delay` and `per_megabyte` of the upload's size, times a
log-normal random number. With more calls than its capacity, each takes longer, by the square of how many times as many
they are. GET /seen is a line per upload (id, monotonic seconds). While held it keeps every answer back until POST
/open. After POST /down it answers 503 to everything else, until POST /up. One thread and one epoll; keep-alive and
close are both spoken.
"""

from __future__ import annotations

import contextlib
import heapq
import random
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

    __slots__ = ("arrived", "closes", "head", "missing", "size", "socket")

    def __init__(self, opened: socket.socket) -> None:
        self.socket, self.head, self.missing, self.arrived, self.closes = opened, b"", -1, 0.0, False
        self.size = 0


class NullGateway:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._clients: dict[int, Client] = {}
        self._seen: list[tuple[bytes, float]] = []
        self._held: list[Client] | None = None
        self._delay = self._per_megabyte = self._spread = 0.0
        self._capacity, self._is_down = 0, False
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
            client.size = int(length[1]) if length else 0
            client.missing = client.size - body
            if client.missing <= 0:
                self._received(client)

    def _received(self, client: Client) -> None:
        if self._is_down and not client.head.startswith(b"POST /up"):
            self._send(client, b"", b"text/plain", b"503 Service Unavailable")
            return
        if not client.head.startswith(b"POST /process"):
            self._control(client)
            return
        found = CORRELATION.search(client.head)
        self._seen.append((found[1] if found else b"-", client.arrived))
        if self._held is not None:
            self._held.append(client)
        elif seconds := self._seconds_for(client.size):
            heapq.heappush(self._due, (client.arrived + seconds, len(self._seen), client))
        else:
            self._answer(client)

    def _seconds_for(self, size: int) -> float:
        crowd = max(1.0, (len(self._due) + 1) / self._capacity) if self._capacity else 1.0
        seconds = (self._delay + self._per_megabyte * size / 1e6) * crowd**2
        return seconds * random.lognormvariate(0, self._spread) if self._spread else seconds

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
                self._set_speed(options)
                self._seen = []
            case "/change":
                self._set_speed(parse_qs(asked.query))
            case "/open":
                waiting, self._held = self._held or [], None
                body = b"%.6f" % time.monotonic()
                for one in waiting:
                    self._answer(one)
            case "/down" | "/up":
                self._is_down = asked.path == "/down"
            case "/count":
                body = b"%d" % len(self._seen)
            case "/seen":
                body = b"".join(b"%b %.6f\n" % seen for seen in self._seen)
        client.socket.settimeout(30)  # of any size: every client here reads it at once
        self._send(client, body, b"text/plain")
        if client.socket.fileno() >= 0:
            client.socket.setblocking(False)

    def _set_speed(self, options: dict[str, list[str]]) -> None:
        self._delay, self._per_megabyte, self._spread = (
            float(options.get(name, ["0"])[0]) for name in ("delay", "per_megabyte", "spread")
        )
        self._capacity = int(options.get("capacity", ["0"])[0])

    def _send(self, client: Client, body: bytes, kind: bytes, status: bytes = b"200 OK") -> None:
        ending = b"close" if client.closes else b"keep-alive"
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: %b\r\n\r\n"
        closes, client.head, client.missing, client.arrived = client.closes, b"", -1, 0.0
        try:
            client.socket.sendall(head % (status, kind, len(body), ending) + body)
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
