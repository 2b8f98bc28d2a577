"""One sentence for the visitor whose file it is: where the job is, why, and what happens next.

The operator's sentence (`convertq show`) names hosts, commands and hours of the server's clock. This one names none of
them, and does not change while nothing happens, so that a page which asks again is told so in a few bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertq.worker.submission import REFUSALS

Row = Mapping[str, Any]
BUSY = "Converter busy — jobs will resume automatically"


def why(job: Row, hold: Row, max_attempts: int) -> str:
    """`job` as list_session_jobs gives it, `hold` a row of get_hold."""
    match job["status"]:
        case "uploaded":
            return "Stored; it is queued as soon as what it waits for is complete"
        case "queued":
            return _queued(job, hold, max_attempts)
        case "processing":
            return f"Being converted, attempt {job['attempt_count']} of {max_attempts}"
        case "complete":
            return "Converted" if job["has_result"] else "Converted, but the result has expired: upload the file again"
    return _failed(job)


def _queued(job: Row, hold: Row, max_attempts: int) -> str:
    if hold["breaker"] != "closed":
        return BUSY
    if job["retry_after"] is not None and job["retry_after"] > job["now"]:
        reason = job["last_error"] or "the attempt before failed"
        return f"Waits for attempt {job['attempt_count'] + 1} of {max_attempts}: {reason}"
    if hold["active_servers"] == 0:
        return "Waits: no converter is running just now"
    return "Waits for its turn"


def _failed(job: Row) -> str:
    reason = job["error_message"] or "no reason is recorded"
    if job["error_code"] in REFUSALS:
        return f"Refused: {reason}"
    return f"Given up: {reason}" if job["dead_letter"] else f"Failed: {reason}"
