"""The hot statements stay cheap on a big table: their plans, their pages, their HOT updates."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from convertq import sql
from convertq.queue.database.connection import connect
from convertq.queue.database.database import Database
from convertq.queue.database.pipeline import numbered
from convertq.queue.database.url import parse_database_url
from convertq.queue.jobs import NEWEST
from convertq.queue.scan_budget import START, Position
from convertq.queue.status import JobStatus
from psycopg import sql as quoting
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor

from tests.conftest import Server
from tests.jobs import HOLDER, SERVER, Conn, one, register_server

#: 50,000 to claim, 20,000 that wait for a retry (and were queued first), 200,000 done, 50 running
JOBS = """
INSERT INTO jobs (owner_session_id, bytes, sha256, status, priority, created_at, queued_at, retry_after, leased_by,
                  lease_expires_at, attempt_count, completed_at)
SELECT 'owner ' || n % 1000, n, lpad(n::text, 64, '0'), status, n % 5, now() - n * interval '1 s',
       now() - n % 27 * interval '1 day',
       CASE WHEN n % 27 IN (5, 6) AND status = 'queued' THEN now() + n * interval '1 h' END,
       CASE status WHEN 'processing' THEN 'host:1:aaaa/' || n END,
       CASE status WHEN 'processing' THEN now() + (n - 100000) * interval '1 s' END,
       CASE status WHEN 'queued' THEN 0 ELSE 1 END, CASE status WHEN 'complete' THEN now() END
  FROM (SELECT n, CASE WHEN n % 5400 = 0 THEN 'processing' WHEN n % 27 < 7 THEN 'queued' ELSE 'complete' END AS status
          FROM generate_series(1, 270000) AS n) AS made
"""
EVENTS = """
INSERT INTO job_events (job_id, event_type, meta)
SELECT id, 'complete', '{"gateway_ok": true}' FROM jobs WHERE status = 'complete' LIMIT 20000
"""
UPDATES = """
SELECT pg_stat_get_xact_tuples_hot_updated('jobs'::regclass) AS hot,
       pg_stat_get_xact_tuples_updated('jobs'::regclass) AS updated
"""
INDEXES = """
SELECT indexname, indexdef FROM pg_indexes
 WHERE tablename = 'jobs' AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""


def load(conn: Conn) -> None:
    """Indexes are made afterwards and triggers are off: a tenth of the time."""
    indexes = conn.execute(INDEXES).fetchall()
    for index in indexes:
        conn.execute(quoting.SQL("DROP INDEX {}").format(quoting.Identifier(index["indexname"])))
    conn.execute("ALTER TABLE jobs DROP CONSTRAINT one_job_per_owner_and_content")
    conn.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    conn.execute(JOBS)
    conn.execute("ALTER TABLE jobs ENABLE TRIGGER USER")
    for index in indexes:
        conn.execute(index["indexdef"])
    conn.execute(
        "ALTER TABLE jobs ADD CONSTRAINT one_job_per_owner_and_content "
        "UNIQUE (owner_session_id, sha256, mapping, bytes)"
    )
    conn.execute(EVENTS)
    conn.execute("VACUUM ANALYZE")


FENCE = {"id": UUID(int=1), "holder": HOLDER, "attempt": 1, "run": 1}
FINISHED = [
    {"id": str(UUID(int=n)), "holder": HOLDER, "attempt": 1, "run": 1, "result_path": "x", "event": {}}
    for n in range(1, 9)
]
ENDING = {"gateway_ok": True, "gateway_status": 200, "gateway_ms": 1, "gateway": None, "duration_ms": 1}
ERROR = {"error_code": "GW_5XX", "error_message": "x", **ENDING}
CLAIM = {
    "check_for_due": True, "due_after": "-infinity", "holder": HOLDER, "server": SERVER, "lease_ttl": 600, "wanted": 1,
    "count_up_to": 1, "finished": "[]", "retention_days": 30, "excluded": "{}",
}  # fmt: skip
BATCH = {**CLAIM, **START.parameters, "wanted": 8, "count_up_to": 32}
PAGE = {
    "owner": "owner 7", "statuses": list(JobStatus), "before_created_at": NEWEST[0], "before_id": NEWEST[1],
    "limit": 51, "heartbeat_timeout": 40, "gateways": ["default"],
}  # fmt: skip
FROM_THE_START = START.parameters
#: Statement: its parameters and the indexes that it is meant to use. jobs_by_status also finds what runs now.
HOT: dict[str, tuple[dict[str, Any], set[str]]] = {
    "complete_and_claim": (
        {**CLAIM, **FROM_THE_START},
        {"jobs_claimable", "jobs_waiting_for_retry", "jobs_pkey"},
    ),
    "reroute_jobs": (
        {"after_route": "", "page": 500, **{k: v for k, v in FROM_THE_START.items() if k != "route"}},
        {"jobs_claimable", "jobs_pkey"},
    ),
    "promote_due_jobs": ({"due_after": "-infinity"}, {"jobs_waiting_for_retry", "jobs_pkey"}),
    "reclaim_jobs": ({"max_attempts": 3}, {"jobs_by_status", "jobs_pkey"}),
    "extend_lease": ({**FENCE, "lease_ttl": 600}, {"jobs_pkey"}),
    "report_progress": (
        {
            **FENCE,
            "lease_ttl": 600,
            "step": "reading",
            "percent": 1,
            "bytes_done": 1,
            "bytes_total": 1,
            "message": None,
        },
        {"jobs_pkey"},
    ),
    "lock_lease": (FENCE, {"jobs_pkey"}),
    "schedule_retry": ({**FENCE, "delay_ms": 1, **ERROR}, {"jobs_pkey"}),
    "fail_job": ({**FENCE, "dead_letter": False, **ERROR}, {"jobs_pkey"}),
    "requeue_job": ({**FENCE, "reason": "x", "delay_ms": 0, "gateway_status": 503, "gateway": None}, {"jobs_pkey"}),
    "requeue_worker_jobs": (
        {
            "holder": HOLDER,
            "max_attempts": 3,
            "counted": True,
            "begun": [UUID(int=1)],
            "reason": "x",
            "kept": [UUID(int=2)],
        },
        {"jobs_by_status", "jobs_pkey"},
    ),
    "find_owner": ({"id": UUID(int=1)}, {"jobs_pkey"}),
    "list_session_jobs": (PAGE, {"jobs_by_owner", "jobs_by_owner_and_status", "job_events_by_job", "jobs_pkey"}),
    "get_session_job": ({"id": UUID(int=1)}, {"jobs_pkey", "job_events_by_job"}),
    "list_needed_jobs": ({"id": UUID(int=1)}, {"jobs_pkey"}),
    "count_active_jobs": ({"owner": "owner 7"}, {"jobs_by_owner_and_status"}),
    "get_prospects": ({"id": UUID(int=1), "heartbeat_timeout": 40, "hostname": "host"}, {"jobs_pkey"}),
    "list_jobs_ahead": (
        {"ids": [UUID(int=1)], "routes": ["default"], "at_most": 1000},
        {"jobs_claimable", "jobs_pkey"},
    ),
    "list_far_positions": (
        {"ids": [UUID(int=1)], "at_most": 1000, "count_up_to": 1000},
        {"jobs_claimable", "jobs_pkey"},
    ),
    "measure_queue": ({"at_most": 5000}, {"jobs_claimable"}),
    "get_estimate_model": ({"heartbeat_timeout": 40}, {"jobs_by_status"}),
    "measure_service_times": ({"batch": 500, "memory": 500}, {"job_events_outcomes", "jobs_pkey"}),
    "find_new_jobs": ({"seen_event": 19_000, "events": 500, "wanted": 10}, {"job_events_pkey", "jobs_pkey"}),
    "score_samples": ({"scores": 1000}, {"jobs_pkey"}),
    "pause_jobs": ({**FROM_THE_START, "limit": 1000}, {"jobs_claimable", "jobs_pkey"}),
    "resume_jobs": ({"route": "", "owner": "", "created_at": "-infinity"}, {"jobs_paused", "jobs_pkey"}),
    "expire_jobs": ({}, {"jobs_with_a_deadline", "jobs_pkey"}),
    "renew_turns": ({"first": -1, "last": 2**63 - 1}, {"jobs_claimable", "jobs_pkey"}),
    "advance_turns": ({"finds_new": True, "positions": "[]"}, {"jobs_claimable"}),
    "limit_owners": ({"window": 500, "slack": 250}, {"jobs_by_owner_and_turn", "jobs_pkey"}),
    "release_owners": ({"window": 500}, {"jobs_over_cap", "jobs_by_owner_and_turn", "jobs_pkey"}),
    "trip_breaker": (
        {"gateway": "default", "window": 20, "threshold": 0.5, "cooldown_ms": 1},
        {"job_events_gateway_calls", "job_events_pkey"},
    ),
}


@pytest.fixture(scope="module")
def big(pg_server: Server, template: NoopExecutor, admin: psycopg.Connection) -> Iterator[str]:
    """One big database for this module: nothing that a test does to it is kept."""
    name = f"{template.dbname}_{os.urandom(4).hex()}"
    create = quoting.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    admin.execute(create.format(quoting.Identifier(name), quoting.Identifier(template.template_dbname)))
    url = pg_server.url(name)
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as conn:
        load(conn)
        register_server(conn)
    yield url
    admin.execute(quoting.SQL("DROP DATABASE {} WITH (FORCE)").format(quoting.Identifier(name)))


@pytest.fixture
def conn(big: str) -> Iterator[Conn]:
    """In a transaction that is rolled back."""
    with psycopg.connect(big, row_factory=dict_row) as opened:
        yield opened
        opened.rollback()


def explain(
    conn: Conn, statement: str, mode: str, options: str = "", parameters: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The plan of a prepared statement, as a worker has it: EXPLAIN alone would always plan for the values given."""
    given = HOT[statement][0] if parameters is None else parameters
    names = list(given)
    text = re.sub(
        r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", sql.query(statement, "public").decode()
    )
    conn.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
    conn.execute(f"PREPARE hot AS {text}".encode())
    values = quoting.SQL(", ").join(quoting.Literal(given[name]) for name in names)
    call = quoting.SQL("EXPLAIN (FORMAT JSON{}) EXECUTE hot").format(quoting.SQL(options))
    row = conn.execute(quoting.SQL("{} ({})").format(call, values) if names else call).fetchone()
    conn.execute("DEALLOCATE hot")
    assert row is not None
    plan: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    name_partitions_as_their_table(conn, plan)
    return plan


def name_partitions_as_their_table(conn: Conn, plan: dict[str, Any]) -> None:
    """A partition of job_events, and an index of it, gets the name that the migrations give to all of them. An empty
    partition keeps its own: to read it whole is to read nothing."""
    roots = (
        "SELECT relname, pg_partition_root(oid)::regclass::text AS root FROM pg_class"
        " WHERE relispartition AND (relpages > 0 OR relkind = 'i')"
    )
    root_of = {row["relname"]: row["root"] for row in conn.execute(roots)}
    for node in nodes(plan):
        for key in node.keys() & {"Relation Name", "Index Name"}:
            node[key] = root_of.get(node[key], node[key])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("statement", HOT)
def test_a_hot_statement_uses_its_index_and_reads_no_table_whole(conn: Conn, statement: str, mode: str) -> None:
    found = list(nodes(explain(conn, statement, mode)))
    scanned = {node.get("Relation Name") for node in found if node["Node Type"] == "Seq Scan"}
    assert not scanned & {"jobs", "job_events"}
    indexes = {node["Index Name"] for node in found if "Index Name" in node}
    on_jobs = {name for name in indexes if name.startswith(("jobs_", "job_events_"))}
    assert on_jobs
    assert on_jobs <= HOT[statement][1]
    on_status = [node for node in found if node.get("Index Name") == "jobs_by_status"]
    assert all("'processing'" in node.get("Index Cond", "") for node in on_status)


EXPIRED = {
    "status": "complete",
    "days": 1,
    "after_at": "2000-01-01",
    "after_id": UUID(int=0),
    "limit": 200,
}
IDS = {"ids": [UUID(int=number) for number in range(200)]}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    ("statement", "given"), [("lock_expired_jobs", EXPIRED), ("find_dependants", IDS), ("delete_jobs", IDS)]
)
def test_removing_jobs_reads_no_table_whole(conn: Conn, statement: str, given: dict[str, Any], mode: str) -> None:
    found = list(nodes(explain(conn, statement, mode, parameters=given)))
    assert not {node.get("Relation Name") for node in found if node["Node Type"] == "Seq Scan"} & {"jobs", "job_events"}
    if statement == "lock_expired_jobs":
        assert {node["Index Name"] for node in found if "Index Name" in node} == {"jobs_by_status"}


def test_every_reference_to_a_job_has_an_index(conn: Conn) -> None:
    """DELETE looks in each of them for rows that name the job; without one it would read the whole table."""
    unindexed = conn.execute(
        "SELECT conrelid::regclass::text AS name, conkey FROM pg_constraint AS reference"
        " WHERE contype = 'f' AND confrelid = 'jobs'::regclass AND NOT EXISTS ("
        "     SELECT FROM pg_index WHERE indrelid = conrelid AND indkey[0] = conkey[1] AND indisvalid"
        "        AND (indpred IS NULL OR pg_get_expr(indpred, indrelid) LIKE '%IS NOT NULL%'))"
    ).fetchall()
    assert unindexed == []


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_batch_is_completed_by_key_and_reads_no_table_whole(conn: Conn, mode: str) -> None:
    found = list(
        nodes(explain(conn, "complete_and_claim", mode, parameters={**BATCH, "finished": json.dumps(FINISHED)}))
    )
    assert not [node for node in found if node["Node Type"] in ("Hash Join", "Merge Join", "Sort", "Incremental Sort")]
    assert "jobs" not in {node.get("Relation Name") for node in found if node["Node Type"] == "Seq Scan"}


def test_a_claim_reads_its_index_in_order_and_sorts_nothing(conn: Conn) -> None:
    found = list(nodes(explain(conn, "complete_and_claim", "force_generic_plan")))
    assert "jobs_claimable" in {node.get("Index Name") for node in found}
    assert not [node for node in found if node["Node Type"] in ("Sort", "Incremental Sort")]


def test_the_index_of_the_claim_has_the_order_of_the_claim(conn: Conn) -> None:
    definition = one(conn, "SELECT pg_get_indexdef('jobs_claimable'::regclass) AS text")["text"]
    first, *rest = sql.claim_order().split(", ")
    assert first == "-priority::bigint"
    assert f"(route, ((- (priority)::bigint)), {', '.join(rest)})" in definition


def test_the_next_jobs_are_listed_in_the_order_of_the_claim_and_sort_nothing(conn: Conn) -> None:
    found = list(nodes(explain(conn, "list_next_jobs", "force_generic_plan", parameters={"limit": 20})))
    assert {node.get("Index Name") for node in found} - {None} == {"jobs_claimable"}
    assert not [node for node in found if node["Node Type"] in ("Sort", "Incremental Sort")]


@pytest.mark.parametrize("place", [0, 49_000])
def test_a_jobs_place_in_a_long_queue_is_found_in_few_pages(conn: Conn, place: int) -> None:
    """For the first, none is before it; for the last, the count ends at its bound."""
    queue = (
        "SELECT id FROM jobs WHERE status = 'queued' AND retry_after IS NULL"
        " ORDER BY route, -priority::bigint, turn, created_at, id"
    )
    job_id = one(conn, f"{queue} OFFSET {place} LIMIT 1")["id"]
    for statement in ("list_jobs_ahead", "list_far_positions"):
        given = {**HOT[statement][0], "ids": [job_id]}
        plan = explain(conn, statement, "force_generic_plan", ", ANALYZE, BUFFERS", given)
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 2500


@pytest.mark.parametrize(
    ("statement", "pages"),
    [
        ("complete_and_claim", 200),
        ("promote_due_jobs", 60_000),
        ("reclaim_jobs", 6000),
        ("requeue_worker_jobs", 6000),
        ("trip_breaker", 100),
        ("list_session_jobs", 400),
        ("count_active_jobs", 100),
        ("find_owner", 10),
    ],
)
def test_a_hot_statement_touches_few_pages(conn: Conn, statement: str, pages: int) -> None:
    plan = explain(conn, statement, "force_generic_plan", ", ANALYZE, BUFFERS")
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < pages


def test_thousands_of_paused_jobs_cost_nothing(conn: Conn) -> None:
    """Their owner stays paused, and the jobs have been moved out of the claim's index."""
    conn.execute("SET LOCAL session_replication_role = replica")
    conn.execute("INSERT INTO pauses (owner, by) VALUES ('paused', 'me')")
    conn.execute(
        "INSERT INTO jobs (owner_session_id, bytes, sha256, status, priority, paused, retry_after, queued_at)"
        " SELECT 'paused', n, repeat('0', 64), 'queued', 9, true, 'infinity', now() FROM generate_series(1, 5000) AS n"
    )
    for statement in ("complete_and_claim", "resume_jobs", "expire_jobs"):
        plan = explain(conn, statement, "force_generic_plan", ", ANALYZE, BUFFERS")
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200


def test_a_turn_and_a_limit_cost_the_same_beside_thousands_of_jobs(conn: Conn) -> None:
    conn.execute("SET LOCAL session_replication_role = replica")
    conn.execute("UPDATE fair_share SET takes_turns = true, owner_max_running = 1")
    conn.execute(
        "INSERT INTO jobs (owner_session_id, bytes, sha256, status, queued_at, turn, over_cap, retry_after)"
        " SELECT 'many', n, repeat('0', 64), 'queued', now(), -n, n > 2000,"
        "        CASE WHEN n > 2000 THEN 'infinity'::timestamptz END FROM generate_series(2, 5000) AS n"
    )
    conn.execute("UPDATE jobs SET owner_session_id = 'many' WHERE status = 'processing'")
    for call in ("SELECT next_turn('default', 0, 'many')", "SELECT owners_at_cap(1)"):
        one(conn, call)  # plans it
        row = one(conn, f"EXPLAIN (FORMAT JSON, ANALYZE, BUFFERS) {call}")
        assert row["QUERY PLAN"][0]["Plan"]["Shared Hit Blocks"] < 300
    for statement in ("advance_turns", "release_owners"):
        plan = explain(conn, statement, "force_generic_plan", ", ANALYZE, BUFFERS")
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 1000
    assert one(conn, "SELECT next_turn('default', 0, 'many') AS turn")["turn"] == -2


def test_resuming_an_owner_of_thousands_reads_as_many_as_it_moves(conn: Conn) -> None:
    conn.execute("SET LOCAL session_replication_role = replica")
    conn.execute("UPDATE jobs SET paused = true, retry_after = 'infinity' WHERE status = 'queued'")
    conn.execute("ANALYZE jobs")
    for mode in ("force_custom_plan", "force_generic_plan"):
        found = list(nodes(explain(conn, "resume_jobs", mode)))
        assert {node.get("Index Name") for node in found} - {None} <= {"jobs_paused", "jobs_pkey"}
        assert not {node.get("Relation Name") for node in found if node["Node Type"] == "Seq Scan"} & {"jobs"}


def test_a_claim_of_eight_touches_few_pages(conn: Conn) -> None:
    plan = explain(conn, "complete_and_claim", "force_generic_plan", ", ANALYZE, BUFFERS", BATCH)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 900


def test_looking_for_dependants_to_release_where_there_are_none_touches_few_pages(conn: Conn) -> None:
    start = {"after_depends_on": UUID(int=0), "after_job": UUID(int=0)}
    explain(conn, "release_dependants", "force_generic_plan", ", ANALYZE", start)  # its own statements are planned
    plan = explain(conn, "release_dependants", "force_generic_plan", ", ANALYZE, BUFFERS", start)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 5


def test_a_slice_of_dependants_is_found_without_reading_those_before_it(conn: Conn) -> None:
    conn.execute("SET LOCAL session_replication_role = replica")
    dependency = one(conn, "SELECT id FROM jobs WHERE status = 'complete' LIMIT 1")["id"]
    conn.execute(
        "INSERT INTO job_dependencies SELECT id, %s FROM jobs WHERE status = 'complete' AND id <> %s",
        [dependency, dependency],
    )
    last = one(conn, "SELECT job_id FROM job_dependencies ORDER BY job_id DESC OFFSET 100 LIMIT 1")["job_id"]
    conn.execute("INSERT INTO dependants_to_release VALUES (%s, %s, %s)", [dependency, last, UUID(int=2**128 - 1)])
    start = {"after_depends_on": UUID(int=0), "after_job": UUID(int=0)}
    plan = explain(conn, "release_dependants", "force_generic_plan", ", ANALYZE, BUFFERS", start)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 1500  # links and jobs of a hundred, not of 199,000


def test_promoting_one_retry_does_not_read_the_queue(conn: Conn) -> None:
    for _ in range(2):  # the second time, the functions of the triggers have their plans
        conn.execute(
            "UPDATE jobs SET retry_after = 'yesterday' WHERE id = (SELECT id FROM jobs WHERE status = 'queued' LIMIT 1)"
        )
        plan = explain(conn, "promote_due_jobs", "force_generic_plan", ", ANALYZE, BUFFERS")
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 100


def test_a_peek_at_every_gateway_touches_few_pages(conn: Conn) -> None:
    """Also where one of them has no job."""
    conn.execute("INSERT INTO circuit_breaker (gateway) VALUES ('empty')")
    routes = [{**FROM_THE_START, "route": name, "excluded": []} for name in ("default", "empty")]
    given = {"holder": HOLDER, "routes": json.dumps(routes)}
    explain(conn, "choose_route", "force_generic_plan", ", ANALYZE", given)  # the functions have their plans then
    plan = explain(conn, "choose_route", "force_generic_plan", ", ANALYZE, BUFFERS", given)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30


def test_an_idle_claim_touches_few_pages(conn: Conn) -> None:
    conn.execute("UPDATE circuit_breaker SET state = 'open', opened_at = now()")
    plan = explain(conn, "complete_and_claim", "force_generic_plan", ", ANALYZE, BUFFERS")
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 20


def test_a_claim_that_starts_behind_the_last_claimed_key_touches_few_pages(conn: Conn) -> None:
    last = one(
        conn,
        "SELECT priority, turn, created_at, id FROM jobs WHERE status = 'queued' AND retry_after IS NULL "
        "ORDER BY route, -priority::bigint, turn, created_at, id OFFSET 40000 LIMIT 1",
    )
    position = Position(-last["priority"], last["turn"], last["created_at"], last["id"])
    parameters = {**CLAIM, **position.parameters}
    plan = explain(conn, "complete_and_claim", "force_generic_plan", ", ANALYZE, BUFFERS", parameters)
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200


@pytest.mark.parametrize("statement", ["extend_lease", "report_progress"])
def test_a_lease_is_extended_by_a_hot_update(conn: Conn, statement: str) -> None:
    job = one(
        conn,
        "SELECT id, leased_by AS holder, attempt_count AS attempt FROM jobs WHERE status = 'processing' LIMIT 1",
    )
    for _ in range(5):
        assert conn.execute(sql.query(statement, "public"), {**HOT[statement][0], **job}).fetchall()
    assert one(conn, UPDATES) == {"hot": 5, "updated": 5}


def test_the_data_is_as_big_as_promised(conn: Conn) -> None:
    counts = {row["status"]: row["count"] for row in conn.execute("SELECT status, count(*) FROM jobs GROUP BY status")}
    waiting = one(conn, "SELECT count(*) FROM jobs WHERE status = 'queued' AND retry_after IS NOT NULL")["count"]
    assert counts["complete"] > 199_000
    assert waiting > 19_000
    assert counts["queued"] - waiting > 49_000
    assert counts["processing"] == 50


@pytest.mark.parametrize("statement", ["complete_and_claim"])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_claim_on_a_table_that_nobody_has_analysed_reads_its_index_in_order(
    database_url: str, mode: str, statement: str
) -> None:
    """New, or filled just now: the planner takes a thousand queued jobs for a handful."""
    with connect(parse_database_url(database_url), "convertq:plans", claims=True) as worker:
        queue_a_thousand_jobs(worker)
        with worker.transaction():
            found = list(nodes(explain(worker, statement, mode)))
    indexes = {node["Index Name"] for node in found if node.get("Index Name", "").startswith("jobs_")}
    assert indexes <= HOT[statement][1]
    assert not [node for node in found if node["Node Type"] == "Sort"]


def queue_a_thousand_jobs(conn: Conn) -> None:
    register_server(conn)
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status) SELECT 1, repeat('0', 64), 'queued' FROM generate_series(1, 1000)"
    )


def test_the_plan_that_clients_of_a_pooler_share_is_the_one_of_a_direct_connection(database_url: str) -> None:
    """Their sessions have no settings of ours, but their transactions have."""
    url = parse_database_url(database_url)
    with connect(url, "convertq:plans", claims=True) as direct, connect(url, "convertq:plans") as pooled:
        queue_a_thousand_jobs(direct)
        with direct.transaction():
            wanted = explain(direct, "complete_and_claim", "force_generic_plan")
        pooled.expect_pooler()
        pipeline = Database(pooled, "public").pipeline
        for _ in range(2):  # the first prepares it
            [rows] = pipeline.run(("complete_and_claim", HOT["complete_and_claim"][0] | FROM_THE_START))
            assert rows[0]["id"] is not None
        name = "SELECT name, generic_plans FROM pg_prepared_statements WHERE starts_with(name, 'convertq_complete')"
        prepared = one(pooled, name)
        assert prepared["generic_plans"] == 2
        _, parameters = numbered("complete_and_claim", "public")
        values = [quoting.Literal((CLAIM | FROM_THE_START)[each]) for each in parameters]
        call = quoting.SQL("EXPLAIN (FORMAT JSON) EXECUTE {} ({})")
        with pooled.transaction():
            pooled.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            explained = call.format(quoting.SQL(prepared["name"]), quoting.SQL(", ").join(values))
            row = pooled.execute(explained).fetchone()
    assert row is not None
    found = row["QUERY PLAN"][0]["Plan"]
    assert [node.get("Index Name") for node in nodes(found)] == [node.get("Index Name") for node in nodes(wanted)]
    assert not [node for node in nodes(found) if node["Node Type"] == "Sort"]
