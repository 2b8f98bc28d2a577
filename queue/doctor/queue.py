"""Checks of the queue: jobs that stand still, servers that are silent, files that are missing, the breaker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from convertq.queue.doctor.finding import CheckContext, Finding, bad, ok, warn
from convertq.queue.event_partitions import AHEAD, make_event_partitions
from convertq.queue.gateway import DEFAULT_GATEWAY, digest_of
from convertq.queue.quantities import counted
from convertq.queue.reclaim import reclaim_all
from convertq.queue.status import JobStatus
from psycopg.rows import DictRow

RECLAIM = "convertq reclaim"
MAKE_PARTITIONS = "convertq migrate (a running worker does it too); a backup or a long transaction may be in the way"
LOCKED_FOR_SECONDS = 5.0


def _inspect(context: CheckContext) -> DictRow:
    return context.database.run(
        "inspect_queue",
        gateways=context.config.gateway_names,
        heartbeat_timeout=context.config.worker_heartbeat_timeout_sec,
        longest_wait=context.limits.queue_wait_seconds,
    )[0]


def check_leases(context: CheckContext) -> Finding:
    count = _inspect(context)["expired_leases"]
    if count:
        what = f"{count} processing with a lease that has run out"
        return bad("leases", what, f"{RECLAIM} (a running worker does it too)", reclaim)
    return ok("leases", "no job is held by an expired lease")


def reclaim(context: CheckContext) -> str:
    requeued, given_up = reclaim_all(context.database, context.config, context.store)
    return f"reclaimed {requeued + given_up}"


def check_queue(context: CheckContext) -> Finding:
    queue = _inspect(context)
    queued = f"{queue['queued']}{'' if queue['queued'] < 10_000 else ' or more'} queued"
    if not queue["queued"]:
        return ok("queue", "nothing is queued" + (f" ({queue['parked']} parked)" if queue["parked"] else ""))
    if not queue["active_servers"]:
        return bad("queue", f"{queued}, and no server is active", "start one: convertq worker run")
    waits = queue["first_waits"] or 0.0
    if waits <= context.limits.queue_wait_seconds:
        return ok("queue", queued)
    if queue["claims_go_on"]:
        return warn("queue", f"{queued}; the first waits for {waits / 60:.0f} min", "workers are busy: add some")
    what = f"{queued}; the first waits for {waits / 60:.0f} min, and no worker claims"
    return bad("queue", what, "look for `held` and `db_down` in the workers' log; restart them")


def check_servers(context: CheckContext) -> Finding:
    queue = _inspect(context)
    summary = f"{queue['active_servers']} active"
    if queue["silent_servers"]:
        what = f"{summary}, {queue['silent_servers']} silent for too long"
        return bad("servers", what, f"{RECLAIM} requeues their jobs; look at those hosts", reclaim)
    if queue["dead_servers"]:
        what = f"{summary}, {queue['dead_servers']} died within a day"
        return warn("servers", what, "convertq servers; look at those hosts")
    return ok("servers", summary)


def check_breaker(context: CheckContext) -> list[Finding]:
    found = _inspect(context)["breakers"]
    return [_judge_breaker(breaker) for breaker in found] or [ok("breaker", "closed")]


def _judge_breaker(breaker: Mapping[str, Any]) -> Finding:
    is_default = breaker["gateway"] == DEFAULT_GATEWAY
    name = "breaker" if is_default else f"breaker {breaker['gateway']}"
    since = f"{breaker['state'].replace('_', '-')} for {breaker['seconds']:.0f} s"
    if breaker["by_hand"]:
        option = "" if is_default else f" --gateway {breaker['gateway']}"
        return warn(name, f"{since}, by hand: nothing is claimed", f"convertq breaker close{option}")
    return bad(name, f"{since}: the gateway fails", "look at the gateway; it closes by itself")


def check_routes(context: CheckContext) -> list[Finding]:
    """Whether the active servers describe the same gateways, and whether each queued job has one that works on it."""
    rows = context.database.run(
        "inspect_routes", heartbeat_timeout=context.config.worker_heartbeat_timeout_sec,
        digest=digest_of(context.config.gateways),
    )  # fmt: skip
    findings = [
        warn(
            "routes",
            f"jobs of the mapping {row['mapping']!r} wait for the gateway {row['gateway']}, which no active server has",
            "start a server whose GATEWAYS_FILE has it, or submit the files with another mapping",
        )
        for row in rows
        if row["mapping"] is not None
    ]
    differing = [row["server"] for row in rows if row["server"] is not None]
    if differing:
        what = f"the gateways of {counted(len(differing), 'server')} are not those of this host: {', '.join(differing)}"
        findings.append(
            warn("routes", what, "give every host the same GATEWAYS_FILE, and restart; the smallest max_calls counts")
        )
    names = context.config.gateway_names
    return findings or [ok("routes", f"every active server has the same {counted(len(names), 'gateway')}")]


def check_owners(context: CheckContext) -> Finding:
    """Whether the active servers have the settings that are in force, which the last start has set."""
    rows = context.database.run("inspect_fair_share", heartbeat_timeout=context.config.worker_heartbeat_timeout_sec)
    turns, most = rows[0]["takes_turns"], rows[0]["owner_max_running"]
    in_force = f"FAIR_SHARE={int(turns)}, OWNER_MAX_RUNNING={most}"
    differing = [row["server"] for row in rows if row["server"] is not None]
    if differing:
        what = f"{in_force} is in force, and {counted(len(differing), 'server')} started with others"
        remedy = "give every host the same settings, and restart; the last start counts"
        return warn("owners", f"{what}: {', '.join(differing)}", remedy)
    return ok("owners", f"{in_force}, the same on every active server")


def check_pauses(context: CheckContext) -> Finding:
    queue = _inspect(context)
    if not queue["pauses"]:
        return ok("pauses", "nothing is paused")
    since = (queue["now"] - queue["paused_at"]).total_seconds()
    return warn("pauses", f"{queue['pauses']} in force, the first for {since:.0f} s", "convertq stats; convertq resume")


def check_history(context: CheckContext) -> Finding:
    history = context.database.run("inspect_event_partitions")[0]
    ahead = f"{history['ahead']} of {AHEAD} partitions of job_events are ahead"
    if not history["ahead"] or not (history["has_current"] or history["in_default"]):
        return bad("history", f"{ahead}: events go to the default one", MAKE_PARTITIONS, make_partitions)
    if history["ahead"] < AHEAD:
        return warn("history", ahead, MAKE_PARTITIONS, make_partitions)
    if history["in_default"]:
        count = f"{history['in_default']}{'' if history['in_default'] < 10_000 else ' or more'}"
        remedy = "nothing is lost; convertq cleanup deletes them one by one when they are old"
        return warn("history", f"{ahead}; {count} events are in the default one, which cannot be dropped", remedy)
    return ok("history", ahead)


def make_partitions(context: CheckContext) -> str:
    return f"created {make_event_partitions(context.database, seconds=LOCKED_FOR_SECONDS)}"


def check_sources(context: CheckContext) -> Finding:
    missing = _missing(
        lambda row: context.store.has_source(row["id"]), lambda: [*_next(context), *_newest(context, JobStatus.QUEUED)]
    )
    if missing:
        what = f"{len(missing)} queued without a source, such as {missing[0]}"
        return bad("sources", what, f"{_right_place(context, 'UPLOADS_DIR')} Submit them again")
    return ok("sources", f"no queued job lacks its source (first and newest {_sample_jobs(context)})")


def check_results(context: CheckContext) -> Finding:
    missing = _missing(
        lambda row: context.store.has_result(row["id"], row["result_path"]),
        lambda: _newest(context, JobStatus.COMPLETE),
    )
    if missing:
        what = f"{len(missing)} complete without a result, such as {missing[0]}"
        return bad("results", what, f"{_right_place(context, 'RESULTS_DIR')} Submit them again")
    return ok("results", f"no complete job lacks its result (newest {_sample_jobs(context)})")


def _right_place(context: CheckContext, directory: str) -> str:
    if context.store.is_remote:
        return "are STORAGE_URL and STORAGE_READ_URL where they were stored?"
    return f"is {directory} the one that they were {'stored in' if directory == 'UPLOADS_DIR' else 'written to'}?"


def _sample_jobs(context: CheckContext) -> int:
    """Over the network, each file is a request."""
    return min(context.limits.sample_jobs, 100) if context.store.is_remote else context.limits.sample_jobs


def _newest(context: CheckContext, status: str) -> list[DictRow]:
    return context.database.run("list_newest_jobs", status=status, limit=_sample_jobs(context))


def _next(context: CheckContext) -> list[DictRow]:
    """The jobs that would fail first."""
    return context.database.run("list_next_jobs", limit=_sample_jobs(context))


def _missing(has_file: Callable[[DictRow], bool], listed: Callable[[], list[DictRow]]) -> list[UUID]:
    """Jobs that seem to lack their file are listed twice: one may have moved on, or expired, since the first list."""
    rows = {row["id"]: row for row in listed()}
    missing = [job_id for job_id, row in rows.items() if not has_file(row)]
    still = {row["id"] for row in listed()} if missing else set()
    return [job_id for job_id in missing if job_id in still]
