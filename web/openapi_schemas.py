"""The shapes of what the API sends, as JSON Schema: half of its contract."""

from __future__ import annotations

from typing import Any

from convertq.web.asked import MAX_IDS
from convertq.worker.counters import STATUSES
from convertq.worker.errors import Code

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
PLAIN_TEXT: Schema = {"type": "string", "pattern": "^[^\\x00]*$"}  # PostgreSQL has no text with a NUL
WHOLE: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
YES_OR_NO: Schema = {"type": "boolean"}
ID: Schema = {"type": "string", "format": "uuid"}
TIME: Schema = {"type": "string", "format": "date-time"}
STATUS: Schema = {"type": "string", "enum": list(STATUSES)}
CODE: Schema = {"type": "string", "enum": [str(code) for code in Code]}
BREAKER_STATE: Schema = {"type": "string", "enum": ["closed", "open", "half_open"]}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def fixed(**properties: Schema) -> Schema:
    """An object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def listed(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def named(schema: Schema) -> Schema:
    """An object whose keys are data."""
    return {"type": "object", "additionalProperties": schema}


def of(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


PROGRESS = fixed(
    step={"type": "string", "enum": ["reading", "converting", "writing"]},
    percent={"type": "integer", "minimum": 0, "maximum": 100},
    bytes_done=WHOLE, bytes_total=or_null(WHOLE), message=or_null(TEXT), updated_at=TIME,
)  # fmt: skip

ABOUT_A_JOB: dict[str, Schema] = {
    "id": ID, "status": STATUS, "original_filename": or_null(TEXT), "bytes": {"type": "integer", "minimum": 1},
    "mapping": TEXT, "priority": {"type": "integer"}, "attempt_count": WHOLE, "error_code": or_null(TEXT),
    "error_message": or_null(TEXT), "dead_letter": YES_OR_NO, "retry_after": or_null(TIME), "created_at": TIME,
    "queued_at": or_null(TIME), "started_at": or_null(TIME), "completed_at": or_null(TIME), "failed_at": or_null(TIME),
    "updated_at": TIME,
}  # fmt: skip

BREAKER: dict[str, Schema] = {
    "state": BREAKER_STATE, "by_hand": YES_OR_NO, "opened_at": or_null(TIME), "open_seconds": or_null(NUMBER),
    "open_seconds_total": NUMBER, "next_probe_seconds": or_null(NUMBER), "probe_by": or_null(TEXT),
    "trial_job": or_null(ID), "calls": WHOLE, "failures": WHOLE, "window": WHOLE, "threshold": NUMBER,
}  # fmt: skip
FAILED_CALL = fixed(
    at=TIME, job_id=ID, error_code=or_null(TEXT), error_message=or_null(TEXT), gateway_status=or_null(WHOLE)
)

SERVER = fixed(
    id=TEXT, hostname=or_null(TEXT), pid=or_null(WHOLE), version=or_null(TEXT), environment=or_null(TEXT),
    concurrency=or_null(WHOLE),
    status={"type": "string", "enum": ["active", "draining", "stopped", "dead", "unregistered"]},
    started_at=or_null(TIME), last_heartbeat_at=or_null(TIME), stopped_at=or_null(TIME), up_seconds=or_null(NUMBER),
    heartbeat_seconds=or_null(NUMBER),
    jobs=listed(
        fixed(
            slot=TEXT, job_id=ID, attempt=WHOLE, bytes=WHOLE, seconds=or_null(NUMBER), lease_seconds=NUMBER,
            step=or_null(TEXT), percent=or_null(WHOLE),
        )
    ),
)  # fmt: skip

STATS = fixed(
    jobs=fixed(**{status: {"type": "integer"} for status in STATUSES}),
    oldest_queued_seconds=or_null(NUMBER),
    completed_per_minute=fixed(**{"1m": NUMBER, "5m": NUMBER, "60m": NUMBER}),
    completed_60m=WHOLE, failed_60m=WHOLE, success_rate=or_null(NUMBER),
    gateway_seconds=fixed(calls=WHOLE, p50=or_null(NUMBER), p95=or_null(NUMBER), p99=or_null(NUMBER)),
    errors_24h=named(WHOLE),
    totals=fixed(created=WHOLE, completed=WHOLE, failed=WHOLE, retries=WHOLE),
    breaker=fixed(**BREAKER),
    servers=fixed(active=WHOLE, draining=WHOLE, stopped=WHOLE, dead=WHOLE, workers=WHOLE),
)  # fmt: skip

MINUTE = fixed(
    at=TIME, completed=WHOLE, failed=WHOLE, retries=WHOLE, errors=named(WHOLE), gateway_p50_ms=or_null(NUMBER),
    gateway_p95_ms=or_null(NUMBER), depth=WHOLE,
)  # fmt: skip

BY_ID = fixed(ids={"type": "array", "items": ID, "minItems": 1, "maxItems": MAX_IDS})
IN_BULK: Schema = {
    "type": "object",
    "properties": {"code": or_null(CODE), "dead": YES_OR_NO, "owner": or_null(PLAIN_TEXT)},
    "additionalProperties": False,
}

SCHEMAS: dict[str, Schema] = {
    "Error": fixed(error=fixed(code=CODE, message=TEXT)),
    "Job": fixed(
        **ABOUT_A_JOB, progress=or_null(PROGRESS), why=TEXT, can_retry=YES_OR_NO, can_download=YES_OR_NO
    ),
    "Jobs": fixed(jobs=listed(of("Job")), active=WHOLE, next=or_null(ID)),
    "Event": fixed(event_type=TEXT, at=TIME, meta=named({})),
    "Progress": fixed(id=ID, status=STATUS, progress=or_null(PROGRESS)),
    "Status": fixed(breaker=BREAKER_STATE, queue_depth=WHOLE),
    "AdminJob": fixed(
        **ABOUT_A_JOB, owner_session_id=or_null(TEXT), leased_by=or_null(TEXT), now=TIME
    ),
    "Server": SERVER,
    "Stats": STATS,
    "Breaker": fixed(**BREAKER, last_failures=listed(FAILED_CALL)),
    "MovedBreaker": fixed(**BREAKER, last_failures=listed(FAILED_CALL), changed=YES_OR_NO),
    "Minute": MINUTE,
    "Retries": {"anyOf": [BY_ID, IN_BULK]},
}  # fmt: skip
