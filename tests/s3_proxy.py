"""A proxy in front of a real S3 server, which spoils chosen requests: refused, delayed, cut, truncated."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

CHUNK = 1 << 16


@dataclass
class Fault:
    """Applies to requests with this method, if any, whose path contains `path`; `times` is how often, None: always."""

    method: str = ""
    path: str = ""
    credential: str = ""  # the access key that signed the request
    status: int = 0  # answered instead of the server
    code: str = ""
    cuts_after: int | None = None  # bytes of the answer's body; the connection ends then
    shortens: int = 0  # bytes of the body that are left out, also in Content-Length
    accepts_twice: bool = False  # 412 becomes 200
    loses_answer: bool = False  # the server has done it, and its client never hears of it
    silent: bool = False  # no answer until `release`
    delay_seconds: float = 0.0  # before the request is passed on
    times: int | None = None
    seen: int = field(default=0, init=False)

    def matches(self, method: str, path: str, authorization: str) -> bool:
        if self.method not in ("", method) or self.path not in path or self.times == self.seen:
            return False
        if self.credential not in authorization:
            return False
        self.seen += 1
        return True


class S3Proxy:
    def __init__(self, port: int) -> None:
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self._released = threading.Event()
        proxy = self

        class Handler(_Handler):
            target, owner = port, proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def spoil(self, **fault: Any) -> Fault:
        self.faults.append(Fault(**fault))
        return self.faults[-1]

    def recover(self) -> None:
        self.faults.clear()
        self._released.set()
        self._released = threading.Event()

    def wait_for_release(self) -> None:
        self._released.wait(60)

    def fault_for(self, method: str, path: str, authorization: str) -> Fault | None:
        self.requests.append(f"{method} {path}")
        return next((fault for fault in self.faults if fault.matches(method, path, authorization)), None)

    def count(self, method: str, path: str = "") -> int:
        return sum(1 for each in self.requests if each.startswith(f"{method} ") and path in each)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: int
    owner: S3Proxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.owner.fault_for(self.command, self.path, self.headers.get("Authorization") or "")
        if fault is not None:
            time.sleep(fault.delay_seconds)
        if fault is not None and fault.silent:
            self.owner.wait_for_release()
            self.close_connection = True
            return
        if fault is not None and fault.status:
            self._refuse(fault)
            return
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)) as server:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders(body or None)
            answer = server.getresponse()
            if fault is not None and fault.loses_answer:
                answer.read()
                self.close_connection = True
                return
            self._answer(answer, fault or Fault())

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815

    def _refuse(self, fault: Fault) -> None:
        body = f"<Error><Code>{fault.code}</Code></Error>".encode() if self.command != "HEAD" else b""
        self.send_response_only(fault.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, answer: http.client.HTTPResponse, fault: Fault) -> None:
        body = answer.read()
        body = body[: len(body) - fault.shortens]
        status = 200 if answer.status == 412 and fault.accepts_twice else answer.status
        self.send_response_only(status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(body[: fault.cuts_after])
        if fault.cuts_after is not None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass
