"""The words of the pages for a job: a word, a detail, and after an error what happened and what to do about it.

The server chooses them for every job. The pages' script has the table of states too, for the tone and the icon of each,
and for uploads that the server does not know yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from convertq.queue.errors import Code
from convertq.queue.explain import Explanation, State
from convertq.queue.quantities import counted, size
from convertq.queue.status import JobStatus

#: Where a job is: how it looks (tone, icon), the word for it, and a detail.
STATES: dict[str, dict[str, str]] = {
    JobStatus.UPLOADED: {"tone": "idle", "icon": "clock", "word": "Waiting", "detail": "for another file to be done"},
    JobStatus.QUEUED: {"tone": "idle", "icon": "clock", "word": "Waiting", "detail": "in line"},
    "held": {"tone": "warn", "icon": "pause", "word": "Paused", "detail": "goes on by itself"},
    "paused": {"tone": "warn", "icon": "pause", "word": "Paused", "detail": "by the operator"},
    "limited": {"tone": "idle", "icon": "clock", "word": "Waiting", "detail": "for other files of yours"},
    "parked": {"tone": "idle", "icon": "pause", "word": "Set aside", "detail": "by the operator"},
    "scheduled": {"tone": "idle", "icon": "clock", "word": "Scheduled", "detail": "begins by itself"},
    "retrying": {"tone": "warn", "icon": "clock", "word": "Trying again", "detail": "after a problem"},
    JobStatus.PROCESSING: {"tone": "busy", "icon": "spin", "word": "Converting", "detail": ""},
    "reading": {"tone": "busy", "icon": "spin", "word": "Reading", "detail": ""},
    "converting": {"tone": "busy", "icon": "spin", "word": "Converting", "detail": ""},
    "writing": {"tone": "busy", "icon": "spin", "word": "Saving", "detail": ""},
    JobStatus.COMPLETE: {"tone": "good", "icon": "check", "word": "Ready", "detail": "to download"},
    "expired": {"tone": "idle", "icon": "clock", "word": "Removed", "detail": "was kept for a while"},
    JobStatus.FAILED: {"tone": "bad", "icon": "alert", "word": "Failed", "detail": ""},
    JobStatus.CANCELLED: {"tone": "idle", "icon": "cross", "word": "Cancelled", "detail": "not converted"},
    "sending": {"tone": "busy", "icon": "up", "word": "Uploading", "detail": ""},
    "unsent": {"tone": "idle", "icon": "up", "word": "Uploading soon", "detail": "others go first"},
    "stalled": {"tone": "warn", "icon": "pause", "word": "Not sent yet", "detail": "tries again by itself"},
    "refused": {"tone": "bad", "icon": "alert", "word": "Not accepted", "detail": ""},
}

NO_NAME = "(no name)"  # other programs may store jobs without one
SEND_AGAIN = "What was uploaded is no longer here: upload the file again."

#: What happened, and what the reader can do.
ERRORS: dict[Code, tuple[str, str]] = {
    Code.NOT_PDF: (
        "This is not a PDF.",
        "Only PDF files can be converted. Open it in the program that made it, save it as PDF, and upload that.",
    ),
    Code.TOO_LARGE: (
        "This file is too large.",
        "A file may have up to {limit}. Split the PDF, or save it with smaller pictures, and upload it again.",
    ),
    Code.GW_4XX: (
        "The converter could not make sense of this document.",
        "Scanned pages without text, a password or an unusual layout are the common reasons. Upload a corrected PDF.",
    ),
    Code.GW_5XX: (
        "The converter had a problem.",
        "It is not about your file. Try again in a few minutes.",
    ),
    Code.GW_TIMEOUT: (
        "The converter took too long.",
        "Long documents need more time than there is. Try again, or split the PDF.",
    ),
    Code.IO_ERROR: (
        "The file could not be read, or its result not be stored.",
        "It is not about your file. Try again; if that fails too, tell the operator of this service.",
    ),
    Code.NOT_READY: (
        "The result is not ready yet.",
        "It can be downloaded as soon as the conversion is done.",
    ),
    Code.EXPIRED: (
        "The result has been removed.",
        "Results are kept for a limited time. Upload the PDF again to have it converted again.",
    ),
    Code.FORBIDDEN: (
        "This is not allowed from here.",
        "Files can be seen and changed only in the browser that uploaded them, on the pages of this site. "
        "Reload this page, and tell the operator of this service if that does not help.",
    ),
    Code.UNKNOWN: (
        "Something unexpected happened.",
        "Try again; if that fails too, tell the operator of this service what the line below says.",
    ),
}

#: For a job; of a result, EXPIRED says that it was removed.
LATE = {
    "what": "It could not be converted in time.",
    "advice": "Its deadline passed before the converter was free. Try again: then it has no deadline.",
}

#: Notices above the list; the script shows and hides them.
BUSY = ("Converter busy — jobs will resume automatically", "You can go on uploading. Nothing is lost.")
AWAY = (
    "The queue cannot be reached at the moment",
    "What you uploaded is safe. This page tries again by itself and catches up.",
)


@lru_cache(maxsize=4)
def errors_in_words(max_bytes: int) -> dict[str, dict[str, str]]:
    limit = limit_in_words(max_bytes)
    return {code: {"what": what, "advice": advice.format(limit=limit)} for code, (what, advice) in ERRORS.items()}


def limit_in_words(max_bytes: int) -> str:
    """`50 MB` for 50 MiB, as people write it."""
    return f"{max_bytes >> 20} MB" if max_bytes % (1 << 20) == 0 else size(max_bytes)


#: Where a job is, as the pages know it; of a job that is being converted, the step that it is in.
PAGE_STATES = {
    State.STORED: JobStatus.UPLOADED,
    State.BLOCKED: JobStatus.UPLOADED,
    State.RELEASED: JobStatus.UPLOADED,
    State.LOST: JobStatus.PROCESSING,
    State.MISSING: "expired",
    State.REFUSED: JobStatus.FAILED,
    State.GIVEN_UP: JobStatus.FAILED,
}


def display(job: Mapping[str, Any], found: Explanation, max_bytes: int) -> dict[str, Any]:
    """What the pages show of a job, in words. Its keys are public: the API sends them to the pages' script.

    `until`: a page adds how long it is until then, in front of the detail.
    """
    state = _page_state(job, found)
    return {
        "state": state,
        "is_active": JobStatus(job["status"]).is_active,
        "name": job["original_filename"] or NO_NAME,
        "word": STATES[state]["word"],
        "detail": _detail(job, found, STATES[state]["detail"]),
        "until": found.until if found.state in (State.RETRYING, State.SCHEDULED) else None,
        "help": _help(found, errors_in_words(max_bytes)),
    }


def _page_state(job: Mapping[str, Any], found: Explanation) -> str:
    if job["status"] == JobStatus.PROCESSING and job["progress"]:
        return str(job["progress"]["step"])
    return PAGE_STATES.get(found.state, str(found.state))


def _detail(job: Mapping[str, Any], found: Explanation, usual: str) -> str:
    match found.state:
        case State.COMPLETE if job["started_at"] and job["completed_at"]:
            return f"took {span((job['completed_at'] - job['started_at']).total_seconds())}"
        case State.RETRYING:
            return f"attempt {found.attempt}"
        case State.REFUSED:
            return "not accepted"
        case State.FAILED | State.GIVEN_UP:
            return f"after {counted(found.attempt, 'attempt')}" if found.attempt else "before it began"
    return usual


def _help(found: Explanation, errors: Mapping[str, dict[str, str]]) -> dict[str, str] | None:
    """What happened, what to do, and the recorded error; None when nothing went wrong."""
    if found.state in (State.EXPIRED, State.MISSING):
        return {**errors[Code.EXPIRED], "detail": ""}
    if found.state not in (State.REFUSED, State.FAILED, State.GIVEN_UP):
        return None
    words = LATE if found.error_code == Code.EXPIRED else errors.get(found.error_code or "", errors[Code.UNKNOWN])
    advice = words["advice"] if found.can_retry or found.state is State.REFUSED else SEND_AGAIN
    return {"what": words["what"], "advice": advice, "detail": f"{found.error_code}: {found.reason or '–'}"}


def percent_of(job: Mapping[str, Any]) -> int | None:
    return int(job["progress"]["percent"]) if job["status"] == JobStatus.PROCESSING and job["progress"] else None


def with_time_left(shown: Mapping[str, Any], now: datetime) -> str:
    """The detail, with the time until the state ends by itself in front of it where that is known."""
    if shown["until"] is None:
        return str(shown["detail"])
    return f"in {span((shown['until'] - now).total_seconds())}, {shown['detail']}"


def expected_end(estimate: Mapping[str, Any] | None, now: datetime) -> str:
    """Empty where nothing can be said, or where that time is over. row.js has the same words."""
    left = (estimate["done_by"] - now).total_seconds() if estimate else 0.0
    return f"probably done within {span(_rounded_up(left))}" if left > 0 else ""


def _rounded_up(seconds: float) -> float:
    unit = 3600 if seconds > 3600 else 60 if seconds > 60 else 1
    return math.ceil(seconds / unit) * unit


def span(seconds: float) -> str:
    """`under 1 s`, `12 s`, `3 min`, `2 h`, `4 days`: in one unit."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h"
    days = int(seconds // 86400)
    return "1 day" if days == 1 else f"{days} days"


def age(at: datetime, now: datetime) -> str:
    seconds = (now - at).total_seconds()
    return "just now" if seconds < 5 else f"{span(seconds)} ago"
