"""Whether a request is lost on connections that are kept alive while uploads are refused before they were read.

`python -m bench.keep_alive`: 10,000 requests over eight `requests` sessions, directly and through nginx and Caddy where
they are installed. Every tenth request is an upload that is refused early. It ends with 1 if any request was lost.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import requests

from bench.web import server, web
from tests.proxies import caddy, find_caddy, find_nginx, nginx

REQUESTS = int(os.environ.get("BENCH_REQUESTS", "10000"))
SESSIONS = 8
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
SIZES = (500, 20_000, 300_000)  # bytes of a refused upload: in one packet with its headers, in several, in many
LOOKS = ("/health", "/api/status", "/api/jobs")


class Client:
    """One session: it keeps its connection, never sends a request again, and records each answer that did not come."""

    def __init__(self, url: str) -> None:
        self._url, self._session = url, requests.Session()
        self._session.trust_env = False
        self._session.cookies["owner_session_id"] = str(uuid4())
        self.lost: list[str] = []

    def send(self, number: int) -> None:
        if number % 10 == 0:
            self._expect((403, 404), "POST", *self._refused(number // 10))
        elif number % 50 == 1:
            self._expect((200, 201), "POST", "/api/jobs", SAME_ORIGIN, b"%PDF-1.7 " + uuid4().hex.encode())
        else:
            self._expect((200,), "GET", LOOKS[number % len(LOOKS)], {})

    def _refused(self, number: int) -> tuple[str, dict[str, str], bytes]:
        """Alternately a request from another site and one for a route that does not exist: nobody reads their body."""
        body = b"%PDF-1.7 ".ljust(SIZES[number % len(SIZES)], b"%")
        return ("/api/jobs", {"Sec-Fetch-Site": "cross-site"}, body) if number % 2 else ("/nowhere", SAME_ORIGIN, body)

    def _expect(
        self, statuses: tuple[int, ...], method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> None:
        files = {"file": ("a.pdf", body)} if body else None
        try:
            answer = self._session.request(method, self._url + path, headers=headers, files=files, timeout=30)
        except requests.RequestException as error:
            self.lost.append(f"{method} {path}: {error}")
            return
        if answer.status_code not in statuses:
            self.lost.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")


def send_requests(url: str, number: int, sessions: int = SESSIONS) -> list[str]:
    """The requests that had no answer, or another one than expected."""
    clients = [Client(url) for _ in range(sessions)]

    def work(client: Client) -> None:
        for each in range(number // sessions):
            client.send(each)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [lost for client in clients for lost in client.lost]


@contextmanager
def routes(port: int) -> Iterator[dict[str, str | None]]:
    """The URL of each way to the web server; None where the program is not installed."""
    direct = f"http://127.0.0.1:{port}"
    with ExitStack() as started:
        yield {
            "directly": direct,
            "through nginx": started.enter_context(nginx(direct)) if find_nginx() else None,
            "through Caddy": started.enter_context(caddy(direct)) if find_caddy() else None,
        }


def measure(name: str, url: str | None) -> bool:
    """Prints a row of the table; whether all requests were answered."""
    if url is None:
        print(f"| {name} | not installed | |")
        return True
    began = time.perf_counter()
    lost = send_requests(url, REQUESTS)
    print(f"| {name} | {len(lost)} | {REQUESTS / (time.perf_counter() - began):.0f} |", flush=True)
    if lost:
        print(*lost[:5], sep="\n", file=sys.stderr)
    return not lost


def main() -> int:
    os.environ["SESSION_MAX_ACTIVE"] = str(REQUESTS)
    print(f"\n{REQUESTS:,} requests over {SESSIONS} kept-alive sessions, every tenth an upload refused early\n")
    print("| | lost | requests/s |\n|---|---:|---:|")
    with ExitStack() as started:
        postgres, _ = started.enter_context(server())
        home = started.enter_context(tempfile.TemporaryDirectory(prefix="convertq-bench-"))
        port, _ = started.enter_context(web(postgres, Path(home)))
        ways = started.enter_context(routes(port))
        answered = [measure(name, url) for name, url in ways.items()]
    return 0 if all(answered) else 1


if __name__ == "__main__":
    sys.exit(main())
