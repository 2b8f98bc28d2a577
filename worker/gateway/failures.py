"""What a gateway's answer, or the lack of one, means for the job: an error code, a message, a time to wait."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Collection

import urllib3.exceptions
from convertq.queue.errors import Code, Failure
from convertq.queue.http_answer import Answer
from convertq.queue.retry_policy import parse_retry_after

#: What a call may raise besides a Failure.
NETWORK_ERRORS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)


def refuse_unless_xml(answer: Answer, busy_status: Collection[int] = ()) -> None:
    """Raises Failure for every answer but a 2xx whose type, if it has one, is XML."""
    status = answer.status
    if status in busy_status:
        retry_after = parse_retry_after(answer.header("Retry-After"), answer.header("Date"))
        message = f"the gateway is busy: it answered {status}"
        raise Failure(Code.GW_5XX, message, gateway_status=status, retry_after=retry_after, is_busy=True)
    if not 200 <= status < 300:
        phrase = http.client.responses.get(status, "")
        raise Failure(
            code_for_status(status), f"the gateway answered {status} {phrase}", gateway_status=status,
            retry_after=_retry_after(answer),
        )  # fmt: skip
    kind = (answer.header("Content-Type") or "").partition(";")[0].strip().lower()
    if kind and kind not in ("application/xml", "text/xml") and not kind.endswith("+xml"):
        message = f"the gateway answered {status} with {kind[:60]}, not with XML"
        raise Failure(Code.GW_5XX, message, gateway_status=status)


def code_for_status(status: int) -> Code:
    if status == 408:
        return Code.GW_TIMEOUT
    if status == 429 or status >= 500:
        return Code.GW_5XX
    return Code.GW_4XX  # also for redirects, which are not followed


def _retry_after(answer: Answer) -> float | None:
    if answer.status not in (429, 503):
        return None
    return parse_retry_after(answer.header("Retry-After"), answer.header("Date"))


def is_timeout(error: Exception) -> bool:
    """urllib3 derives the error of a refused connection from that of a connection that took too long."""
    return isinstance(error, (urllib3.exceptions.TimeoutError, TimeoutError)) and not isinstance(
        error, urllib3.exceptions.NewConnectionError
    )


def failure_of(error: Exception) -> Failure:
    """The message never shows the error itself, which may quote a URL with credentials."""
    if isinstance(error, ssl.SSLError):
        return Failure(Code.GW_5XX, "no secure connection to the gateway: its certificate or TLS was refused")
    return Failure(Code.GW_5XX, _what_broke(error), detail=repr(error)[:500])


def _what_broke(error: Exception) -> str:
    text = repr(error)
    for sign, words in (
        ("NameResolution", "the gateway's name cannot be resolved"),
        ("refused", "the gateway refused the connection"),
        ("IncompleteRead", "the gateway's answer broke off"),
        ("NewConnection", "the gateway cannot be reached"),
    ):
        if sign in text:
            return words
    return "the connection to the gateway broke"
