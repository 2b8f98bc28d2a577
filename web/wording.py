"""What the pages say of a job: a word, a detail, and for what went wrong what happened and what to do about it.

The script of the page is given the same tables, so that a list looks alike whoever draws it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from convertq.worker.errors import Code
from convertq.worker.submission import REFUSALS
from convertq.worker.words import counted, size

#: where a job is: how it looks (tone, icon), the word for it, and a detail
STATES: dict[str, dict[str, str]] = {
    "uploaded": {"tone": "idle", "icon": "clock", "word": "Waiting", "detail": "for another file to be done"},
    "queued": {"tone": "idle", "icon": "clock", "word": "Waiting", "detail": "in line"},
    "held": {"tone": "warn", "icon": "pause", "word": "Paused", "detail": "goes on by itself"},
    "retrying": {"tone": "warn", "icon": "clock", "word": "Trying again", "detail": "after a problem"},
    "processing": {"tone": "busy", "icon": "spin", "word": "Converting", "detail": ""},
    "reading": {"tone": "busy", "icon": "spin", "word": "Reading", "detail": ""},
    "converting": {"tone": "busy", "icon": "spin", "word": "Converting", "detail": ""},
    "writing": {"tone": "busy", "icon": "spin", "word": "Saving", "detail": ""},
    "complete": {"tone": "good", "icon": "check", "word": "Ready", "detail": "to download"},
    "expired": {"tone": "idle", "icon": "clock", "word": "Removed", "detail": "was kept for a while"},
    "failed": {"tone": "bad", "icon": "alert", "word": "Failed", "detail": ""},
    "sending": {"tone": "busy", "icon": "up", "word": "Uploading", "detail": ""},
    "unsent": {"tone": "idle", "icon": "up", "word": "Uploading soon", "detail": "others go first"},
    "stalled": {"tone": "warn", "icon": "pause", "word": "Not sent yet", "detail": "tries again by itself"},
    "refused": {"tone": "bad", "icon": "alert", "word": "Not accepted", "detail": ""},
}

NO_NAME = "(no name)"  # other programs store jobs too, and need not give one
SEND_AGAIN = "What was uploaded is no longer here: upload the file again."

#: what happened, and what the reader can do
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
        "It is not about your file. Try again; if that fails too, tell whoever runs this service.",
    ),
    Code.NOT_READY: (
        "The result is not ready yet.",
        "It can be downloaded as soon as the conversion is done.",
    ),
    Code.EXPIRED: (
        "The result has been removed.",
        "Results are kept for a limited time. Upload the PDF again to have it converted anew.",
    ),
    Code.FORBIDDEN: (
        "This is not allowed from here.",
        "Files can be seen and changed only in the browser that uploaded them, on the pages of this site. "
        "Load this page anew, and tell whoever runs this service if that does not help.",
    ),
    Code.UNKNOWN: (
        "Something unexpected happened.",
        "Try again; if that fails too, tell whoever runs this service what the line below says.",
    ),
}

#: without a script; with one they come and go by themselves
BUSY = ("Converter busy — jobs will resume automatically", "You can go on uploading. Nothing is lost.")
AWAY = (
    "The queue cannot be reached at the moment",
    "What you uploaded is safe. This page tries again by itself and catches up.",
)


def errors_in_words(max_bytes: int) -> dict[str, dict[str, str]]:
    limit = limit_in_words(max_bytes)
    return {code: {"what": what, "advice": advice.format(limit=limit)} for code, (what, advice) in ERRORS.items()}


def limit_in_words(max_bytes: int) -> str:
    """`50 MB`, as people say it, for 50 MiB."""
    return f"{max_bytes >> 20} MB" if max_bytes % (1 << 20) == 0 else size(max_bytes)


def state_of(job: dict[str, Any], now: datetime, *, held: bool) -> str:
    """A key of STATES."""
    status = str(job["status"])
    if status == "queued" and held:
        return "held"
    if status == "queued" and job["retry_after"] and job["retry_after"] > now:
        return "retrying"
    if status == "processing" and job["progress"]:
        return str(job["progress"]["step"])
    if status == "complete" and not job["can_download"]:
        return "expired"
    return status


def help_for(job: dict[str, Any], errors: dict[str, dict[str, str]]) -> dict[str, str] | None:
    """None when nothing went wrong."""
    if job["status"] == "complete" and not job["can_download"]:
        return {**errors[Code.EXPIRED], "detail": ""}
    if job["status"] != "failed":
        return None
    code = job["error_code"] if job["error_code"] in errors else Code.UNKNOWN
    said = errors[code]
    advice = said["advice"] if job["can_retry"] or code in REFUSALS else SEND_AGAIN
    return {"what": said["what"], "advice": advice, "detail": f"{job['error_code']}: {job['error_message'] or '–'}"}


def detail_of(job: dict[str, Any], state: str, now: datetime) -> str:
    if state == "complete" and job["started_at"] and job["completed_at"]:
        return f"took {span((job['completed_at'] - job['started_at']).total_seconds())}"
    if state == "retrying":
        seconds = (job["retry_after"] - now).total_seconds()
        return f"in {span(seconds)}, attempt {job['attempt_count'] + 1}"
    if state == "failed":
        return "not accepted" if job["error_code"] in REFUSALS else f"after {counted(job['attempt_count'], 'attempt')}"
    return STATES[state]["detail"]


def percent_of(job: dict[str, Any]) -> int | None:
    return int(job["progress"]["percent"]) if job["status"] == "processing" and job["progress"] else None


def span(seconds: float) -> str:
    """`under 1 s`, `12 s`, `3 min`, `2 h`, `4 days`: one unit, as people say it."""
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
