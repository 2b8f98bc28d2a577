"""The check of the hot statements' plans, as the database would run them now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from convertq import sql
from convertq.queue.claim import NO_CLAIM, NOTHING_FINISHED
from convertq.queue.doctor.finding import CheckContext, Finding, bad, ok

HOT = ("complete_and_claim", "promote_due_jobs", "reclaim_jobs", "extend_lease")
#: one value for every parameter of the hot statements; no row has them
VALUES: dict[str, Any] = {
    **NO_CLAIM, **NOTHING_FINISHED, "id": UUID(int=0), "holder": "doctor/0", "attempt": 1, "run": 1,
    "max_attempts": 3, "wanted": 1, "check_for_due": True,
}  # fmt: skip


def check_plans(context: CheckContext) -> Finding:
    rows = context.database.run("inspect_jobs_table")[0]["estimated_rows"]
    slow = [statement for statement in HOT if reads_every_job(context, statement)]
    if rows <= context.limits.large_table_rows:
        return ok("plans", f"{len(HOT)} hot statements can be planned; jobs has few rows")
    if slow:
        what = f"{', '.join(slow)} {'reads' if len(slow) == 1 else 'read'} the whole of jobs ({rows} rows)"
        return bad("plans", what, "ANALYZE jobs; is an index of the migrations missing or invalid?")
    return ok("plans", f"{len(HOT)} hot statements use their indexes on {rows} rows")


def reads_every_job(context: CheckContext, statement: str) -> bool:
    schema = context.database.schema
    text = sql.query("explain", schema) + sql.query(statement, schema)
    answer = context.database.connection.execute(text, VALUES, prepare=False).fetchall()
    plan = answer[0]["QUERY PLAN"][0]["Plan"]
    return any(node["Node Type"] == "Seq Scan" and node["Relation Name"] == "jobs" for node in nodes(plan))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
