"""Checks of the queue: jobs that stand still, servers that are silent, files that are missing, the breaker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from convertq.worker.checks.finding import Finding, Look, bad, ok, warn
from convertq.worker.files import discard, is_regular
from convertq.worker.job_queue import JobQueue
from psycopg.rows import DictRow

RECLAIM = "convertq reclaim"


def _inspect(look: Look) -> DictRow:
    return look.database.run(
        "inspect_queue",
        heartbeat_timeout=look.config.worker_heartbeat_timeout_sec,
        patience=look.limits.queue_patience,
    )[0]


def check_leases(look: Look) -> Finding:
    count = _inspect(look)["expired_leases"]
    if count:
        what = f"{count} processing with a lease that has run out"
        return bad("leases", what, f"{RECLAIM} (a running worker does it too)", reclaim)
    return ok("leases", "no job is held by an expired lease")


def reclaim(look: Look) -> str:
    queue, total = JobQueue(look.database, look.config), 0
    while rows := queue.reclaim_jobs():
        for row in rows:
            discard(look.files.part(row["id"], row["attempt"], row["holder"]))
        total += len(rows)
    return f"reclaimed {total}"


def check_queue(look: Look) -> Finding:
    queue = _inspect(look)
    queued = f"{queue['queued']}{'' if queue['queued'] < 10_000 else ' or more'} queued"
    if not queue["queued"]:
        return ok("queue", "nothing is queued")
    if not queue["active_servers"]:
        return bad("queue", f"{queued}, and no server is active", "start one: convertq worker run")
    waits = queue["first_waits"] or 0.0
    if waits <= look.limits.queue_patience or queue["breaker"] != "closed":
        return ok("queue", queued)
    if queue["claims_go_on"]:
        return warn("queue", f"{queued}; the first waits for {waits / 60:.0f} min", "workers are busy: add some")
    what = f"{queued}; the first waits for {waits / 60:.0f} min, and no worker claims"
    return bad("queue", what, "look for `held` and `db_down` in the workers' log; restart them")


def check_servers(look: Look) -> Finding:
    queue = _inspect(look)
    said = f"{queue['active_servers']} active"
    if queue["silent_servers"]:
        what = f"{said}, {queue['silent_servers']} silent for too long"
        return bad("servers", what, f"{RECLAIM} gives their jobs back; look at those hosts", reclaim)
    if queue["dead_servers"]:
        what = f"{said}, {queue['dead_servers']} died within a day"
        return warn("servers", what, "convertq servers; look at those hosts")
    return ok("servers", said)


def check_breaker(look: Look) -> Finding:
    queue = _inspect(look)
    if queue["breaker"] == "closed":
        return ok("breaker", "closed")
    since = f"{queue['breaker'].replace('_', '-')} for {(queue['now'] - queue['opened_at']).total_seconds():.0f} s"
    if queue["by_hand"]:
        return warn("breaker", f"{since}, by hand: nothing is claimed", "convertq breaker close")
    return bad("breaker", f"{since}: the gateway fails", "look at the gateway; it closes by itself")


def check_sources(look: Look) -> Finding:
    missing = _missing(look.files.source, lambda: [*_next(look), *_newest(look, "queued")])
    if missing:
        what = f"{len(missing)} queued without a source, such as {missing[0]}"
        return bad("sources", what, "is UPLOADS_DIR the one that they were stored in? Submit them again")
    return ok("sources", f"no queued job lacks its source (first and newest {look.limits.sample})")


def check_results(look: Look) -> Finding:
    missing = _missing(look.files.result, lambda: _newest(look, "complete"))
    if missing:
        what = f"{len(missing)} complete without a result, such as {missing[0]}"
        return bad("results", what, "is RESULTS_DIR the one that they were written to? Submit them again")
    return ok("results", f"no complete job lacks its result (newest {look.limits.sample})")


def _newest(look: Look, status: str) -> list[UUID]:
    rows = look.database.run("list_newest_jobs", status=status, limit=look.limits.sample)
    return [row["id"] for row in rows]


def _next(look: Look) -> list[UUID]:
    """Those that would fail first."""
    return [row["id"] for row in look.database.run("list_next_jobs", limit=look.limits.sample)]


def _missing(path_of: Callable[[UUID], Path], listed: Callable[[], list[UUID]]) -> list[UUID]:
    """Asked again of those that seem to lack it: a job may have moved on, or expired, since it was listed."""
    missing = [job_id for job_id in dict.fromkeys(listed()) if not is_regular(path_of(job_id))]
    still = set(listed()) if missing else set()
    return [job_id for job_id in missing if job_id in still]
