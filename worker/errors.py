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
#: what counts against the gateway in the breaker's window
GATEWAY_FAILURES = frozenset({Code.GW_5XX, Code.GW_TIMEOUT})
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass
class Failure(Exception):
    """Why an attempt did not succeed: a value that travels as an exception as far as the attempt's edge."""

    code: Code
    message: str
    retryable: bool = True
    gateway_status: int | None = None
    retry_after: float | None = None  # seconds, as the gateway asked
    called: bool = False  # the gateway was called: it counts for the breaker
    gateway_ms: int | None = None
    detail: str | None = None  # for the log alone

    def __post_init__(self) -> None:
        self.message = one_line(self.message)
        self.retryable = self.retryable and self.code in RETRYABLE

    @property
    def gateway_ok(self) -> bool | None:
        """None: no call was made."""
        return self.code not in GATEWAY_FAILURES if self.called else None


def io_failure(what: str, error: OSError) -> Failure:
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
