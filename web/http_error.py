"""Errors that a request is answered with: raised anywhere, turned into a response by the application."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from convertq.queue.errors import Code

NO_SUCH_PAGE = "there is nothing at this address"
INTERNAL_ERROR = "internal error; it has been logged"


class HttpCode(StrEnum):
    """The codes of errors that are about the request; an error about a job or a file has one of `Code`."""

    BAD_REQUEST = "BAD_REQUEST"
    UNAUTHORIZED = "UNAUTHORIZED"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    UNKNOWN_MAPPING = "UNKNOWN_MAPPING"
    TOO_MANY = "TOO_MANY"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


#: The code of an HttpError that names none; any other status below 500 means BAD_REQUEST.
CODES: dict[int, Code | HttpCode] = {
    401: HttpCode.UNAUTHORIZED,
    403: Code.FORBIDDEN,
    404: HttpCode.NOT_FOUND,
    409: HttpCode.CONFLICT,
    410: Code.EXPIRED,
    413: Code.TOO_LARGE,
    422: HttpCode.UNKNOWN_MAPPING,
    429: HttpCode.TOO_MANY,
    500: HttpCode.INTERNAL,
    501: HttpCode.BAD_REQUEST,
    503: HttpCode.UNAVAILABLE,
    507: Code.IO_ERROR,
}


class HttpError(Exception):
    """`message` is one line for people; it names the remedy where there is one."""

    def __init__(
        self, status: int, message: str, code: Code | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.code = code or CODES.get(status, HttpCode.BAD_REQUEST if status < 500 else HttpCode.INTERNAL)
        self.headers = dict(headers or {})


class DatabaseDown(HttpError):
    """The database or its schema cannot be used at the moment.

    `reason` is for the log and for operators: it may name the host, the port and the role. `public_reason` is for
    everybody who requests /ready.
    """

    def __init__(self, reason: str, public_reason: str = "the database is not reachable") -> None:
        headers = {"Retry-After": "2"}
        super().__init__(503, "the queue's database is not reachable: try again in a moment", headers=headers)
        self.reason, self.public_reason = reason, public_reason


def storage_unavailable() -> HttpError:
    """The reason is for the log: it may name the bucket."""
    return HttpError(503, "the storage is not reachable: try again in a moment", headers={"Retry-After": "5"})


def no_such_job() -> HttpError:
    return HttpError(404, "no such job")


def job_of_another_visitor() -> HttpError:
    """The message is the same for every job, so that it reveals nothing about this one."""
    return HttpError(403, "this job belongs to another visitor", Code.FORBIDDEN)


def job_must_wait() -> HttpError:
    """The other job is not named: it may belong to another visitor."""
    return HttpError(409, "the job waits for another one, which must be complete first", Code.NOT_READY)


def too_many_active(limit: int) -> HttpError:
    headers = {"Retry-After": "10"}
    return HttpError(
        429, f"you have {limit} unfinished jobs, which is the maximum: wait until one is finished", headers=headers
    )
