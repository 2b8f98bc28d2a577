"""A job as its owner may see it: no owner, no path of the server, no lease."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertq.web.why import why
from convertq.worker.config import Config
from convertq.worker.files import Files, is_regular

FIELDS = (
    "id", "status", "original_filename", "bytes", "mapping", "priority", "attempt_count", "error_code",
    "error_message", "dead_letter", "retry_after", "created_at", "queued_at", "started_at", "completed_at", "failed_at",
    "updated_at", "progress",
)  # fmt: skip
#: what an event may tell; `worker` and the like are the operator's business
EVENT_META = ("attempt", "reason", "error_code", "error_message", "retry_after", "gateway_status", "duration_ms")


def view_job(job: Mapping[str, Any], hold: Mapping[str, Any], config: Config, files: Files) -> dict[str, Any]:
    """Of a row of list_session_jobs or get_session_job, and of get_hold."""
    has_result = bool(job["has_result"] and is_regular(files.result(job["id"])))
    return {
        **{name: job[name] for name in FIELDS},
        "why": why({**job, "has_result": has_result}, hold, config.retry_max_attempts),
        "can_retry": bool(job["status"] == "failed" and job["has_source"] and is_regular(files.source(job["id"]))),
        "can_download": bool(job["status"] == "complete" and has_result),
    }


def view_event(event: Mapping[str, Any]) -> dict[str, Any]:
    meta = {name: event["meta"][name] for name in EVENT_META if name in event["meta"]}
    return {"event_type": event["event_type"], "at": event["at"], "meta": meta}
