"""Checks of the sessions: who holds a transaction open, and who keeps dead rows from being removed."""

from __future__ import annotations

from convertq.queue.doctor.finding import CheckContext, Finding, bad, ok, warn
from convertq.queue.quantities import counted
from psycopg.rows import DictRow

SHARE_OF_DEAD = 0.2  # of the live rows


def check_idle_sessions(context: CheckContext) -> list[Finding]:
    rows = context.database.run("find_idle_transactions", older_than=context.limits.idle_transaction_seconds)
    return [_idle(row) for row in rows] or [_none_idle(context)]


def _none_idle(context: CheckContext) -> Finding:
    found = context.database.run("count_hidden_sessions")[0]
    hidden = found["sessions"]
    idle = f"is idle in a transaction for over {context.limits.idle_transaction_seconds / 60:g} min"
    if not hidden:
        return ok("idle sessions", f"none {idle}")
    are_hidden = f"{counted(hidden, 'session')} of other roles {'is' if hidden == 1 else 'are'} hidden"
    return warn("idle sessions", f"none that this role may see {idle}; {are_hidden}", _let_look(found["role"]))


def _let_look(role: str) -> str:
    return f"let this role look: GRANT pg_read_all_stats TO {role}"


def _idle(row: DictRow) -> Finding:
    what = f"pid {row['pid']} ({row['program']}) is idle in a transaction for {row['seconds']:.0f} s"
    remedy = f"end it: SELECT pg_terminate_backend({row['pid']})"
    return bad("idle sessions", what, remedy, _end_ours if row["is_ours"] else None)


def _end_ours(context: CheckContext) -> str:
    rows = context.database.run("end_idle_transactions", older_than=context.limits.idle_transaction_seconds)
    return f"ended {', '.join(str(row['pid']) for row in rows if row['ended']) or 'none'}"


def check_vacuum(context: CheckContext) -> Finding:
    table = context.database.run("inspect_jobs_table")[0]
    holder = context.database.one("find_horizon_holder")
    is_long = holder is not None and (holder["seconds"] or 0) > context.limits.long_transaction_seconds
    summary = f"{table['dead_rows']} dead rows in jobs, {table['live_rows']} live"
    too_many = table["dead_rows"] > max(context.limits.dead_rows, SHARE_OF_DEAD * table["live_rows"])
    if table["autovacuum_is_off"]:
        return bad(
            "vacuum", "autovacuum is switched off for jobs", "switch it on: ALTER TABLE jobs RESET (autovacuum_enabled)"
        )
    if too_many and holder is not None and holder["kind"] == "hidden":
        return _perhaps_kept(context, summary, holder)
    if too_many and holder is not None and (is_long or holder["kind"] != "session"):
        return bad("vacuum", f"{summary}; kept by {_who(holder)}", _release(holder))
    if too_many:
        long = f" for over {context.limits.long_transaction_seconds / 60:g} min" if holder else ""
        return warn("vacuum", f"{summary}, and nobody holds them{long}", "VACUUM ANALYZE jobs; make autovacuum faster")
    if is_long and holder is not None:
        return warn("vacuum", f"{summary}; from now on kept by {_who(holder)}", _release(holder))
    return ok("vacuum", summary)


def _perhaps_kept(context: CheckContext, summary: str, holder: DictRow) -> Finding:
    what = f"{summary}; perhaps kept by pid {holder['name']} ({holder['program']}), which this role may not look into"
    return warn("vacuum", what, _let_look(context.database.run("count_hidden_sessions")[0]["role"]))


def _who(holder: DictRow) -> str:
    since = f" for {holder['seconds']:.0f} s" if holder["seconds"] is not None else ""
    who = "pid" if holder["kind"] == "session" else holder["kind"]
    return f"{who} {holder['name']} ({holder['program']}){since}, {holder['doing']}"


def _release(holder: DictRow) -> str:
    """A name may come from anyone: it is shown, and never made into a command."""
    match holder["kind"]:
        case "session":
            return f"end it: SELECT pg_terminate_backend({holder['name']})"
        case "standby":
            return "end the long query there, or set hot_standby_feedback = off there"
        case "slot":
            return "drop that replication slot, or bring its consumer back"
    return "commit or roll back that prepared transaction"
