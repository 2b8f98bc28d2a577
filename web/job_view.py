"""A job as its owner may see it: no owner, no path of the server, no lease."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertq.queue.config import Config
from convertq.queue.explain import explain
from convertq.queue.facts import facts_for_owner
from convertq.queue.store.protocol import Store
from convertq.web.why import why
from convertq.web.wording import display

FIELDS = (
    "id", "status", "original_filename", "bytes", "mapping", "priority", "attempt_count", "error_code",
    "error_message", "dead_letter", "retry_after", "not_before", "deadline", "created_at", "queued_at", "started_at",
    "completed_at", "failed_at", "cancelled_at", "updated_at", "progress",
)  # fmt: skip
#: Where a file is kept concerns only the operator.
ARTIFACT_FIELDS = ("kind", "attempt", "storage", "bytes", "sha256", "content_type", "created_at")
#: What of an event's meta is public; `worker` and the like concern only the operator.
EVENT_META = ("attempt", "reason", "error_code", "error_message", "retry_after", "gateway_status", "duration_ms")


def view_job(job: Mapping[str, Any], queue: Mapping[str, Any], config: Config, store: Store) -> dict[str, Any]:
    """`job` is a row of list_session_jobs or get_session_job, `queue` one of get_queue_state.

    `estimate` is set by add_estimates, for an answer that is sent.
    """
    facts = facts_for_owner(job, queue, config, store)
    found = explain(facts)
    return {
        **{name: job[name] for name in FIELDS},
        "estimate": None,
        "why": why(found, has_workers=facts.has_workers),
        "can_retry": found.can_retry,
        "can_cancel": found.can_cancel,
        "can_download": found.can_download,
        "display": display(job, found, config.max_upload_bytes),
    }


def view_artifact(artifact: Mapping[str, Any]) -> dict[str, Any]:
    return {name: artifact[name] for name in ARTIFACT_FIELDS}


def view_event(event: Mapping[str, Any]) -> dict[str, Any]:
    meta = {name: event["meta"][name] for name in EVENT_META if name in event["meta"]}
    return {"event_type": event["event_type"], "at": event["at"], "meta": meta}
