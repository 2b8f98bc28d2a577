"""The answer to one request: a document, or a refusal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A status with a body, which is bytes or a file that is sent from disk."""

    status: int
    content_type: str
    body: bytes | Path
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return len(self.body) if isinstance(self.body, bytes) else self.body.stat().st_size


class Refusal(Exception):
    """Raised anywhere below the handler to end a request with this status and this one line."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = " ".join(message.split())[:200]
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def json_answer(status: int, document: dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    return Answer(status, "application/json", body, headers or {})


def refusal_answer(refusal: Refusal) -> Answer:
    return json_answer(refusal.status, {"error": refusal.message}, refusal.headers)
