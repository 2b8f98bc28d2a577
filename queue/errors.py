"""Which errors there are, what each is called in public, and whether it is worth another try."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    NOT_PDF = "NOT_PDF"
    TOO_LARGE = "TOO_LARGE"
    GW_4XX = "GW_4XX"
    GW_5XX = "GW_5XX"
    GW_TIMEOUT = "GW_TIMEOUT"
    IO_ERROR = "IO_ERROR"
    NOT_READY = "NOT_READY"
    EXPIRED = "EXPIRED"
    FORBIDDEN = "FORBIDDEN"
    UNKNOWN = "UNKNOWN"


RETRYABLE = frozenset({Code.GW_5XX, Code.GW_TIMEOUT, Code.IO_ERROR, Code.UNKNOWN})
#: when a job or a request gets this code, for docs/commands.md (`make docs`)
MEANINGS = {
    Code.NOT_PDF: "Submission: the file is not a PDF.",
    Code.TOO_LARGE: "Submission: the file is larger than `MAX_UPLOAD_BYTES`.",
    Code.GW_4XX: "The gateway refused the document (4xx), redirected (3xx), or the mapping is not allowed.",
    Code.GW_5XX: "The gateway answered 5xx or 429, could not be reached, or sent no complete XML. "
    "A retry after 429 or 503 waits at least as long as `Retry-After` says, up to 10 minutes.",
    Code.GW_TIMEOUT: "The gateway answered 408, or the call took longer than `GATEWAY_TIMEOUT_MS`.",
    Code.IO_ERROR: "The source could not be read, or the result could not be written. "
    "Retried once; not at all when the disk is full.",
    Code.NOT_READY: "Request: the job has no result yet, or waits for another job.",
    Code.EXPIRED: "Request: retention has removed the result. Job: its deadline passed before it could begin.",
    Code.FORBIDDEN: "Request: the job belongs to another visitor.",
    Code.UNKNOWN: "Anything else, such as a worker that died in every attempt.",
}
#: what counts against the gateway in the breaker's window
GATEWAY_FAILURES = frozenset({Code.GW_5XX, Code.GW_TIMEOUT})
#: How a gateway says that it has too much to do.
OVERLOAD_STATUSES = frozenset({429, 503})
#: Why a submitted file is refused: nothing of it is stored, and no retry can change that.
FILE_REFUSALS = frozenset({Code.NOT_PDF, Code.TOO_LARGE})
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass
class Failure(Exception):
    """Why an attempt did not succeed: a value that travels as an exception as far as the attempt's edge."""

    code: Code
    message: str
    retryable: bool = True
    gateway_status: int | None = None
    retry_after: float | None = None  # seconds, as the gateway requested
    called: bool = False  # True: the gateway was called, and the breaker counts the call
    gateway_ms: int | None = None
    detail: str | None = None  # for the log alone
    is_busy: bool = False  # the gateway has no room for this call now: the job is requeued, and nothing failed

    def __post_init__(self) -> None:
        self.message = one_line(self.message)
        self.retryable = self.retryable and self.code in RETRYABLE

    @property
    def gateway_ok(self) -> bool | None:
        """None: no call was made."""
        return self.code not in GATEWAY_FAILURES if self.called else None

    @property
    def is_overload(self) -> bool:
        """Whether it says that the gateway has more calls than it can bear: an adaptive limit becomes smaller."""
        refused = self.code is Code.GW_TIMEOUT or self.gateway_status in OVERLOAD_STATUSES
        return self.is_busy or (self.called and refused)


class StorageError(OSError):
    """Object storage did not do what was requested, or could not be reached; the message has the remedy.

    That one object is missing is a FileNotFoundError instead.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EIO, f"storage: {reason}")


def io_failure(what: str, error: OSError) -> Failure:
    if isinstance(error, StorageError):
        return Failure(Code.IO_ERROR, f"{what}: {error.strerror}")
    if error.errno in DISK_FULL:
        return Failure(Code.IO_ERROR, f"{what}: the disk is full", retryable=False)
    return Failure(Code.IO_ERROR, f"{what}: {(error.strerror or 'unknown error').lower()}")


def one_line(text: str) -> str:
    """At most 200 printable characters, without absolute paths and without credentials in URLs.

    A semicolon stands where a line ended without a mark of its own and the next one does not go on in lower case.
    """
    text = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    lines = [line for each in text.split("\n") if (line := each.strip())]
    text = re.sub(r"(?<=[^.,:;!?])\n(?![a-z])", "; ", "\n".join(lines))
    text = re.sub(r"//[^/\s]*@", "//", text)
    text = re.sub(r"(?<![\w/.…])/(?!/)[\w.@+-]+(?:/[\w.@+-]*)*", "…", text)
    text = " ".join(text.split())
    return text if len(text) <= 200 else text[:199] + "…"
