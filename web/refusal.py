"""Why a request is not answered as asked: a value that travels as an exception as far as the application's edge."""

from __future__ import annotations

from collections.abc import Mapping

from convertq.worker.errors import Code


class Refusal(Exception):
    """Shown to people: `message` is one line in plain words, and says what to do where that is known."""

    def __init__(
        self, status: int, message: str, code: Code = Code.UNKNOWN, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.headers = dict(headers or {})


class DatabaseDown(Refusal):
    """The database, or its schema, is not there just now; `reason` is for the log and for /ready."""

    def __init__(self, reason: str) -> None:
        again = {"Retry-After": "2"}
        super().__init__(503, "the queue's database is not reachable just now: try again in a moment", headers=again)
        self.reason = reason


def no_such_job() -> Refusal:
    return Refusal(404, "no such job")


def of_another() -> Refusal:
    """The same words whatever the job is, has, or does."""
    return Refusal(403, "this job is another visitor's", Code.FORBIDDEN)
