"""The web server in tests: a real gunicorn, visitors with their cookies, and an operator with the token."""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin
from uuid import UUID

import requests
from requests import Response

from tests.processes import Process
from tests.waiting import WAIT_SECONDS, eventually

PDF = b"%PDF-1.7\n1 0 obj << >> endobj\ntrailer << /Root 1 0 R >>\n%%EOF\n"
TOKEN = "a-token-of-the-tests"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}


class Visitor(requests.Session):
    """A browser: it keeps its cookie, and says that its requests come from the site's own page."""

    def __init__(self, url: str, **headers: str) -> None:
        super().__init__()
        self.trust_env = False
        self.url = url
        # a browser sends a request again that meets the server's goodbye to a connection that was idle; this need not
        self.headers.update({"Connection": "close", **SAME_ORIGIN, **headers})

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> Response:
        return super().request(method, urljoin(self.url, str(url)), *args, **{"timeout": WAIT_SECONDS, **options})

    def submit(self, content: bytes = PDF, name: str = "invoice.pdf", **fields: object) -> Response:
        return self.post("/api/jobs", files={"file": (name, content)}, data=fields)

    def submitted(self, content: bytes = PDF, **fields: Any) -> UUID:
        answer = self.submit(content, **fields)
        assert answer.status_code in (200, 201), answer.text
        return UUID(answer.json()["id"])

    @property
    def owner(self) -> str:
        """Its session; made by a first request if there was none."""
        if "owner_session_id" not in self.cookies:
            self.get("/api/status")
        return str(self.cookies["owner_session_id"])


class Site:
    """`convertq web run` in the background, on a port of its own."""

    def __init__(self, process: Process) -> None:
        self.process = process
        line = eventually(self._listening, what="the web server listens")
        self.url = str(line).removeprefix("listening on ")

    def _listening(self) -> str | None:
        if self.process.popen.poll() is not None:
            raise AssertionError(f"it has ended:\n{self.process.tail()}")
        return next((line for line in list(self.process.lines) if line.startswith("listening on ")), None)

    def visitor(self, **headers: str) -> Visitor:
        return Visitor(self.url, **headers)

    def operator(self) -> Visitor:
        return Visitor(self.url, **OPERATOR)


def error_of(answer: Response) -> tuple[int, str]:
    """Its status and its code; the shape is the one that all errors have."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert "\n" not in body["error"]["message"]
    return answer.status_code, body["error"]["code"]
