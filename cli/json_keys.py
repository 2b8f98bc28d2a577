"""The keys of every `--json` answer: docs/commands.md is generated from this table (`make docs`), and a test compares
it with what the commands print. Keys stay; new ones may be added."""

from __future__ import annotations

from dataclasses import dataclass

Keys = tuple[str, ...]

JOBS: Keys = (
    "id", "status", "owner_session_id", "original_filename", "bytes", "mapping", "priority", "attempt_count",
    "error_code", "error_message", "dead_letter", "retry_after", "leased_by", "created_at", "queued_at", "started_at",
    "completed_at", "failed_at", "cancelled_at", "updated_at", "now",
)  # fmt: skip
SERVER_JOBS: Keys = ("slot", "job_id", "attempt", "bytes", "seconds", "lease_seconds", "step", "percent")
BREAKER: Keys = (
    "gateway", "state", "by_hand", "opened_at", "open_seconds", "open_seconds_total", "next_probe_seconds", "probe_by",
    "trial_job", "calls", "failures", "window", "threshold", "max_calls", "running_calls", "most_calls", "limit_reason",
    "limit_since", "limit_seconds",
)  # fmt: skip
ARTIFACTS: Keys = (
    "kind", "run", "attempt", "storage", "path_or_key", "bytes", "sha256", "content_type", "created_at",
)  # fmt: skip
ESTIMATE: Keys = ("position", "starts_at", "done_at", "done_by")
PAUSES: Keys = ("gateway", "owner", "by", "at")
FAILURES: Keys = ("at", "job_id", "error_code", "error_message", "gateway_status")
COPIES: Keys = ("copied", "there", "missing", "changed", "failed")
SAMPLE: Keys = (
    "id", "status", "owner_session_id", "original_filename", "mapping", "error_code", "created_at",
)  # fmt: skip
OUTCOME: Keys = ("status", "error_code", "error_message")


@dataclass(frozen=True)
class Document:
    """One JSON document, or with `lines` one object a line."""

    command: str
    keys: Keys
    lines: bool = False
    inside: dict[str, Keys] | None = None  # the keys of a nested object, or of the objects in a list
    remark: str = ""


DOCUMENTS = (
    Document("submit", ("file", "id", "outcome", "code", "message"), lines=True),
    Document(
        "submit --wait", ("file", "id", "outcome", "code", "message", *OUTCOME), lines=True,
        remark="a refused file has the keys of `submit`",
    ),
    Document("convert", ("file", "output", *OUTCOME), lines=True),
    Document("wait", ("id", *OUTCOME), lines=True),
    Document("list", JOBS, lines=True),
    Document(
        "show", ("now", "progress", "waits_for", "explanation", "estimate", "events", "artifacts"),
        remark="and every column of `jobs`",
        inside={"estimate": ESTIMATE, "events": ("event_type", "at", "meta"), "artifacts": ARTIFACTS},
    ),
    Document(
        "stats",
        (
            "jobs", "oldest_queued_seconds", "completed_per_minute", "completed_60m", "failed_60m", "success_rate",
            "gateway_seconds", "errors_24h", "totals", "breaker", "gateways", "servers", "pauses",
        ),
        remark="`jobs` has a key for each status, `errors_24h` one for each code, `gateways` one for each gateway",
        inside={
            "completed_per_minute": ("1m", "5m", "60m"),
            "gateway_seconds": ("calls", "p50", "p95", "p99"),
            "totals": ("created", "completed", "failed", "cancelled", "retries"),
            "breaker": BREAKER,
            "servers": ("active", "draining", "stopped", "dead", "workers"),
            "pauses": PAUSES,
        },
    ),
    Document(
        "breaker", (*BREAKER, "last_failures", "gateways"), inside={"last_failures": FAILURES},
        remark="of the gateway that is worst off; `gateways` has a key for each gateway",
    ),
    Document("breaker open", (*BREAKER, "last_failures", "gateways", "changed"), remark="also after `close`"),
    Document(
        "servers",
        (
            "id", "hostname", "pid", "version", "environment", "concurrency", "status", "started_at",
            "last_heartbeat_at", "stopped_at", "up_seconds", "heartbeat_seconds", "jobs",
        ),
        lines=True,
        inside={"jobs": SERVER_JOBS},
    ),
    Document("pause", ("changed", "pauses"), remark="also after `resume`", inside={"pauses": PAUSES}),
    Document("log", ("id", "event_type", "at", "meta"), lines=True),
    Document("servers --prune", ("pruned", "kept")),
    Document(
        "top --once",
        (
            "now", "jobs", "oldest_queued_seconds", "completed_10s", "completed_60s", "failed_60s",
            "completed_per_second", "breaker", "gateways", "servers", "errors", "pauses",
        ),
        inside={
            "pauses": PAUSES,
            "errors": (
                "id", "state", "attempts", "dead_letter", "retry_after", "owner_session_id", "original_filename",
                "error_code", "error_message", "at",
            ),
        },
    ),
    Document("doctor", ("check", "state", "what", "remedy", "fixed"), lines=True),
    Document("config", ("variable", "value", "source", "problem"), lines=True),
    Document("retry ID", ("id", "queued", "reason"), lines=True),
    Document(
        "retry --failed", ("queued", "skipped"), remark="also with `--code`, `--dead`, `--cancelled`, `--owner`",
    ),
    Document("retry --dry-run", ("dry_run", "matching", "sample"), inside={"sample": SAMPLE}),
    Document("cancel ID", ("id", "cancelled", "cascade", "reason"), lines=True),
    Document("cancel --owner", ("cancelled", "skipped"), remark="also with `--mapping`, `--status`"),
    Document("cancel --dry-run", ("dry_run", "matching", "sample"), inside={"sample": SAMPLE}),
    Document("reclaim", ("reclaimed", "given_up")),
    Document("forget ID", ("id", "forgotten", "reason"), lines=True),
    Document("forget --owner", ("dry_run", "forgotten", "kept")),
    Document("storage copy", ("sources", "results", "bytes"), inside={"sources": COPIES, "results": COPIES}),
    Document(
        "cleanup", ("dry_run", "sources", "results", "events", "orphans", "temp_files", "jobs", "bytes", "failed"),
    ),
    Document(
        "cleanup --dry-run", ("kind", "name", "job_id", "since", "bytes"), lines=True,
        remark="then the line of `cleanup`",
    ),
    Document("migrate", ("applied",)),
    Document("migrate --status", ("version", "name", "state", "applied_at", "supports_code_from"), lines=True),
)  # fmt: skip

#: Keys whose names do not say everything.
MEANINGS = {
    "submit, `outcome`": "`created`, `joined`, `requeued` or `refused`",
    "show, `estimate`": "when it will probably be done: half of such jobs are by `done_at`, nine of ten by `done_by`; "
    "null: nothing can be said now",
    "show, `position`": "in the queue, from 1; exact up to 1000, then estimated; null: it is being converted",
    "stats, `oldest_queued_seconds`": "null: nothing is queued",
    "stats, `success_rate`": "completed jobs divided by those that ended within 60 minutes; null: none ended",
    "stats, `gateway_seconds`": "of at most the last 1000 calls",
    "stats, `errors_24h`": "jobs that failed, by code",
    "stats, `totals`": "since the tables were created",
    "stats, `servers`": "by status; `workers` is the sum of `concurrency` of active servers",
    "stats, `breaker`": "of the gateway that is worst off; `gateways` has them all, by name",
    "breaker, `max_calls`, `running_calls`": "null: the gateway has no limit",
    "breaker, `most_calls`, `limit_reason`, `limit_since`, `limit_seconds`": "of a limit that is adaptive; else null",
    "breaker, `state`": "`closed`, `open` or `half_open`",
    "breaker, `open_seconds`": "of the current opening; `open_seconds_total` is of all",
    "breaker, `calls`, `failures`": "of the last `window` gateway calls",
    "servers, `status`": "`active`, `draining`, `stopped`, `dead`; `unregistered` has a lease and no row",
}
