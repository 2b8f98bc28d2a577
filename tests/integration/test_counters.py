"""The counters are exact at any time, for every writer and reader, and while transactions are open."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from uuid import UUID, uuid4

import psycopg
import pytest
from convertq.queue.counters import Counters, aggregate_counters
from convertq.queue.database.connection import connect as bounded_connect
from convertq.queue.database.migrations import migrate
from convertq.queue.database.url import parse_database_url
from convertq.queue.errors import Code, Failure

from tests import jobs as make
from tests.conftest import Connect
from tests.jobs import Conn

RESUBMITTED = {"upload_path": "/x", "pretty": True, "priority": 0, "not_before": None, "deadline": None}
ARROWS = {
    "uploaded": ("queued", "failed"),
    "queued": ("processing", "failed"),
    "processing": ("complete", "failed", "queued"),
    "failed": ("queued",),
    "complete": ("queued",),
}


def gauge(conn: Conn) -> dict[str, int]:
    counters = Counters(make.database(conn))
    return {status: number for status, number in counters.by_label("jobs").items() if number}


def truth(conn: Conn) -> dict[str, int]:
    rows = conn.execute("SELECT status, count(*) AS jobs FROM jobs GROUP BY status")
    return {row["status"]: row["jobs"] for row in rows}


def aggregate(conn: Conn, batch: int = 1_000_000) -> int:
    rows = make.run(conn, "aggregate_counters", batch=batch)
    return rows[0]["events"] if rows else 0


def forget(conn: Conn, job_id: UUID) -> None:
    with conn.transaction():
        if make.run(conn, "lock_jobs", ids=[job_id]):
            for statement in ("allow_cleanup", "lock_counters"):
                make.run(conn, statement)
            make.run(conn, "delete_jobs", ids=[job_id])


class Walk:
    """One random step after another, by this program's statements, by another program, inside open transactions."""

    def __init__(self, seed: int, conn: Conn, connect: Connect) -> None:
        self.dice, self.conn = random.Random(seed), conn
        self.others = [connect() for _ in range(3)]
        self.in_transaction: set[int] = set()
        make.register_server(conn)
        conn.execute("SET lock_timeout = '20ms'")
        self.steps: tuple[Callable[[], object], ...] = (
            self.insert, self.insert, self.foreign, self.foreign, self.own_attempt, self.own_attempt, self.requeue,
            self.reclaim, self.retry_by_hand, self.resubmit, self.begin_or_end, self.begin_or_end, self.aggregate,
            self.forget,
        )  # fmt: skip

    def take(self) -> None:
        with contextlib.suppress(psycopg.errors.LockNotAvailable):  # held by a transaction that this thread has open
            self.dice.choice(self.steps)()

    def insert(self) -> None:
        make.insert_job(self.any_connection(), self.dice.choice(list(ARROWS)))

    def foreign(self) -> None:
        if row := self.any_job(*ARROWS):
            make.set_status(self.any_connection(), row[0], self.dice.choice(ARROWS[row[1]]))

    def own_attempt(self) -> None:
        job = make.try_claim(self.conn).job
        if job is None:
            return
        failure = Failure(Code.GW_5XX, "no", called=True, gateway_ms=self.dice.randrange(200_000))
        match self.dice.randrange(4):
            case 0:
                make.complete(self.conn, job, gateway_status=200, gateway_ms=self.dice.randrange(200_000))
            case 1:
                make.fail(self.conn, job, failure, dead_letter=True)
            case 2:
                make.retry_later(self.conn, job, self.dice.choice([0, 60_000]), failure)
            case 3:
                make.queue(self.conn).requeue_job(job, "shutdown")

    def requeue(self) -> None:
        make.try_claim(self.conn)
        make.queue(self.conn, RETRY_MAX_ATTEMPTS=2).requeue_worker_jobs(make.HOLDER, counted=True, reason="died")

    def reclaim(self) -> None:
        self.conn.execute(
            "UPDATE jobs SET lease_expires_at = 'yesterday' WHERE id IN (SELECT id FROM jobs"
            " WHERE status = 'processing' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
        )
        make.queue(self.conn, RETRY_MAX_ATTEMPTS=2).reclaim_jobs()

    def retry_by_hand(self) -> None:
        if row := self.any_job("failed"):
            make.run(self.any_connection(), "retry_jobs", ids=[row[0]])

    def resubmit(self) -> None:
        if row := self.any_job("failed", "complete"):
            make.run(self.any_connection(), "resubmit_job", id=row[0], **RESUBMITTED)

    def forget(self) -> None:
        """On a connection without a transaction of the test's: a lock on the counters would stop every other folder."""
        if row := self.any_job(*ARROWS):
            forget(self.conn, row[0])

    def begin_or_end(self) -> None:
        at = self.dice.randrange(len(self.others))
        if at in self.in_transaction:
            self.in_transaction.remove(at)
            self.others[at].execute(self.dice.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        else:
            self.in_transaction.add(at)
            self.others[at].execute("BEGIN")

    def aggregate(self) -> None:
        aggregate(self.dice.choice([self.conn, *self.others]), batch=self.dice.choice([1, 3, 1000]))

    def end(self) -> None:
        for at in list(self.in_transaction):
            self.others[at].execute("COMMIT")

    def any_connection(self) -> Conn:
        return self.dice.choice([self.conn, *self.others])

    def any_job(self, *statuses: str) -> tuple[UUID, str] | None:
        """One that nobody has locked: this test has one thread, and a lock would never be released."""
        rows = self.conn.execute(
            "SELECT id, status FROM jobs WHERE status = ANY (%s) ORDER BY id FOR UPDATE SKIP LOCKED", [list(statuses)]
        ).fetchall()
        row = self.dice.choice(rows) if rows else None
        return (row["id"], row["status"]) if row else None


@pytest.mark.parametrize("seed", range(6))
def test_the_gauge_is_the_real_count_at_every_step_of_any_walk(conn: Conn, connect: Connect, seed: int) -> None:
    walk, observer = Walk(seed, conn, connect), connect()
    for step in range(250):
        walk.take()
        if step % 5 == 0:
            assert gauge(observer) == truth(observer), f"after step {step}"
    walk.end()
    assert gauge(conn) == truth(conn)
    while aggregate(conn):
        pass
    assert gauge(conn) == truth(conn)
    not_aggregated = make.one(conn, "SELECT count(*) AS n FROM job_events WHERE NOT is_aggregated(xact_id, id)")
    assert not_aggregated["n"] == 0


@pytest.mark.parametrize("seed", range(2))
def test_totals_are_those_of_the_events_whenever_they_are_aggregated(conn: Conn, connect: Connect, seed: int) -> None:
    walk = Walk(100 + seed, conn, connect)
    walk.steps = tuple(step for step in walk.steps if step != walk.forget)  # whose events are gone
    for _ in range(200):
        walk.take()
    walk.end()
    for _ in range(2):
        counters = Counters(make.database(conn))
        found = make.one(
            conn,
            "SELECT count(*) FILTER (WHERE event_type = 'created') AS jobs_created,"
            " count(*) FILTER (WHERE event_type = 'complete') AS jobs_completed,"
            " count(*) FILTER (WHERE event_type = 'retry' AND NOT meta ? 'reason') AS retries,"
            " coalesce(sum((meta ->> 'gateway_ms')::int), 0) AS gateway_ms FROM job_events",
        )
        assert {name: counters(name) for name in found} == found
        codes = conn.execute(
            "SELECT meta ->> 'error_code' AS code, count(*) AS n FROM job_events WHERE event_type = 'failed' GROUP BY 1"
        )
        assert counters.by_label("jobs_failed") == {row["code"]: row["n"] for row in codes}
        aggregate_counters(make.database(conn))


def test_what_commits_late_is_counted_once(conn: Conn, connect: Connect) -> None:
    """The event of a transaction that began first and ends last has the lowest id of all."""
    late = connect()
    late.execute("BEGIN")
    make.insert_job(late)
    make.insert_job(conn)
    assert aggregate(conn) == 0, "nothing may be aggregated beyond a transaction that still runs"
    assert gauge(conn) == {"queued": 1}
    late.execute("COMMIT")
    assert gauge(conn) == {"queued": 2}
    assert aggregate(conn) == 4
    assert gauge(conn) == {"queued": 2}


def test_what_is_rolled_back_is_not_counted(conn: Conn, connect: Connect) -> None:
    undone = connect()
    with contextlib.suppress(ZeroDivisionError), undone.transaction():
        make.insert_job(undone)
        raise ZeroDivisionError
    make.insert_job(conn, "uploaded")
    aggregate(conn)
    assert gauge(conn) == {"uploaded": 1}


def test_many_that_aggregate_at_once_count_nothing_twice(conn: Conn, connect: Connect) -> None:
    for _ in range(200):
        make.insert_job(conn)
    writers = [connect() for _ in range(6)]

    def aggregate_all(writer: Conn) -> Callable[[], int]:
        return lambda: sum(aggregate(writer, batch=7) for _ in range(60))

    counts = make.together(*(aggregate_all(writer) for writer in writers))
    assert sum(count for count in counts if isinstance(count, int)) + aggregate(conn) == 400
    assert gauge(conn) == {"queued": 200}


def test_one_huge_transaction_is_aggregated_in_bounded_batches(conn: Conn) -> None:
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status) SELECT 1, repeat('0', 64), 'queued' FROM generate_series(1, 1000)"
    )
    assert [aggregate(conn, batch=600) for _ in range(5)] == [600, 600, 600, 200, 0]
    assert gauge(conn) == {"queued": 1000}


def test_counters_outlive_the_events(conn: Conn) -> None:
    make.complete(conn, make.claimed(conn), gateway_status=200, gateway_ms=300)
    aggregate(conn)
    with conn.transaction():
        conn.execute("SELECT set_config('convertq.cleanup', 'on', true)")
        conn.execute("DELETE FROM job_events WHERE is_aggregated(xact_id, id)")
    assert make.one(conn, "SELECT count(*) AS n FROM job_events")["n"] == 0
    counters = Counters(make.database(conn))
    assert gauge(conn) == {"complete": 1}
    assert counters("jobs_completed") == counters("jobs_created") == counters("gateway_calls", "0.5") == 1


def test_an_event_that_is_not_aggregated_is_kept_by_retention(conn: Conn, connect: Connect) -> None:
    held = connect()
    held.execute("BEGIN")
    make.insert_job(held)
    make.insert_job(conn)
    aggregate(conn)
    assert make.one(conn, "SELECT count(*) AS n FROM job_events WHERE is_aggregated(xact_id, id)")["n"] == 0
    held.execute("ROLLBACK")
    aggregate(conn)
    assert make.one(conn, "SELECT count(*) AS n FROM job_events WHERE is_aggregated(xact_id, id)")["n"] == 2


@pytest.mark.parametrize(
    ("milliseconds", "bucket"),
    [(0, "0.05"), (50, "0.05"), (51, "0.1"), (1000, "1.0"), (1001, "2.5"), (120_000, "120.0"), (120_001, "+Inf")],
)
def test_a_call_belongs_to_the_bucket_whose_bound_it_reaches(conn: Conn, milliseconds: int, bucket: str) -> None:
    make.complete(conn, make.claimed(conn), gateway_status=200, gateway_ms=milliseconds)
    assert Counters(make.database(conn)).by_label("gateway_calls") == {bucket: 1}


def test_whatever_another_program_writes_into_meta_stops_no_counting(conn: Conn) -> None:
    job = make.insert_job(conn)
    for meta in ('{"gateway_ms": "fast"}', '{"gateway_ms": 1e300}', '{"gateway_ms": -1}', "[]", '"from"', "null"):
        conn.execute("INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'downloaded', %s)", [job, meta])
    assert gauge(conn) == {"queued": 1}
    aggregate(conn)
    assert gauge(conn) == {"queued": 1}


def test_recounting_corrects_what_was_written_around_the_triggers(conn: Conn, connect: Connect) -> None:
    job = make.insert_job(conn)
    aggregate(conn)
    conn.execute("INSERT INTO job_events (job_id, event_type) VALUES (%s, 'queued')", [job])  # told twice
    open_one = connect()
    open_one.execute("BEGIN")
    make.insert_job(open_one, "uploaded")
    assert gauge(conn) != truth(conn)
    make.run(conn, "recount_jobs")
    assert gauge(conn) == truth(conn) == {"queued": 1}
    open_one.execute("COMMIT")
    assert gauge(conn) == truth(conn) == {"queued": 1, "uploaded": 1}
    aggregate(conn)
    assert gauge(conn) == truth(conn)


def test_a_dump_loaded_into_a_younger_cluster_goes_on_counting(conn: Conn) -> None:
    make.insert_job(conn)
    aggregate(conn)
    make.insert_job(conn)  # in the dump, but not aggregated
    conn.execute("SET session_replication_role = replica")
    conn.execute("UPDATE job_events SET xact_id = (xact_id::text::bigint + 1000000)::text::xid8")
    conn.execute("UPDATE counters_position SET xact_id = (xact_id::text::bigint + 1000000)::text::xid8")
    conn.execute("SET session_replication_role = origin")
    make.insert_job(conn, "uploaded")
    aggregate_counters(make.database(conn))
    assert gauge(conn) == truth(conn)
    make.claim(conn)
    make.insert_job(conn, "uploaded")
    for _ in range(2):
        assert gauge(conn) == truth(conn) == {"queued": 1, "processing": 1, "uploaded": 2}
        assert aggregate_counters(make.database(conn)) in (0, 2)
    assert make.one(conn, "SELECT count(*) AS n FROM job_events WHERE NOT is_aggregated(xact_id, id)")["n"] == 0


def test_a_role_that_may_only_add_events_can_start_counting_again(conn: Conn) -> None:
    make.insert_job(conn)
    conn.execute("UPDATE counters_position SET xact_id = '1000000000'")
    role = f"convertq_test_{uuid4().hex}"
    conn.execute(f"CREATE ROLE {role}")
    try:
        conn.execute(
            f"GRANT SELECT ON jobs, job_events, job_events_id_seq, counters, counters_position TO {role};"
            f"GRANT INSERT, UPDATE ON counters, counters_position TO {role};"
            f"GRANT EXECUTE ON FUNCTION recount_jobs() TO {role};"
            f"SET ROLE {role}"
        )
        aggregate_counters(make.database(conn))
        assert gauge(conn) == truth(conn) == {"queued": 1}
    finally:
        conn.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_database_from_before_the_counters_starts_with_what_it_has(database_url: str) -> None:
    with bounded_connect(parse_database_url(database_url), "convertq:tests") as conn:
        migrate(conn, "older", to=2)
        conn.execute("SET search_path TO older")
        for status in ARROWS:
            make.insert_job(conn, status)
        make.set_status(conn, make.insert_job(conn), "processing")
        migrate(conn, "older")
        counters = Counters(make.database(conn, "older"))
        assert counters.by_label("jobs") == truth(conn)
        assert counters("jobs_created") == 6
        assert counters("jobs_completed") == 1
        make.insert_job(conn)
        aggregate_counters(make.database(conn, "older"))
        assert Counters(make.database(conn, "older")).by_label("jobs") == truth(conn)


def test_a_writer_that_was_waiting_for_the_migration_is_counted(database_url: str, connect: Connect) -> None:
    """It has its transaction id before the migration, and its event after."""
    writer, observer = connect(), connect()
    with bounded_connect(parse_database_url(database_url), "convertq:tests") as conn:
        migrate(conn, "older", to=2)
        for session in (conn, writer):
            session.execute("SET search_path TO older")
        job = make.insert_job(conn)
        writer.execute("BEGIN")
        writer.execute("SELECT pg_current_xact_id()")
        with conn.transaction():
            conn.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            waiting = make.begin(lambda: make.set_status(writer, job, "processing"))
            make.wait_until_blocked(observer, writer)
            migrate(conn, "older", to=8)  # later ones build indexes outside a transaction
        waiting.result(10)
        writer.execute("COMMIT")
        migrate(conn, "older")
        database = make.database(conn, "older")
        assert {status: n for status, n in Counters(database).by_label("jobs").items() if n} == truth(conn)
        assert aggregate_counters(database) == 3  # created, queued and processing: none was aggregated before
        assert {status: n for status, n in Counters(database).by_label("jobs").items() if n} == truth(conn)


def test_aggregating_and_reading_scan_only_what_is_new(conn: Conn) -> None:
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status) SELECT 1, repeat('0', 64), 'queued' FROM generate_series(1, 30000)"
    )
    while aggregate(conn):
        pass
    conn.execute("ANALYZE")
    make.insert_job(conn)
    for statement, limit in (
        ("aggregate_counters", 60),
        ("get_counters", 60),
        ("has_uncounted_events", 10),
        ("get_queue_age", 10),
        ("count_outcomes", 10),
    ):
        assert blocks_read(conn, statement) < limit, statement


def blocks_read(conn: Conn, statement: str) -> int:
    from convertq import sql

    text = sql.query(statement, "public").replace(b"%(batch)s", b"10000").replace(b"%(events)s", b"10000")
    text = text.replace(b"%(first_event)s", b"0")
    plan = conn.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) " + text).fetchone()
    assert plan is not None
    top = plan["QUERY PLAN"][0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def test_an_event_that_is_not_of_the_usual_way_says_where_it_came_from(conn: Conn) -> None:
    def came_from(job: UUID) -> object:
        return make.last_event(conn, job)["meta"].get("from")

    assert came_from(make.insert_job(conn, "queued")) is None
    assert came_from(make.insert_job(conn, "failed")) == "uploaded"
    job = make.insert_job(conn, "queued")
    make.set_status(conn, job, "failed")
    assert came_from(job) == "queued"
    make.run(conn, "resubmit_job", id=job, **RESUBMITTED)
    assert came_from(job) == "failed"


def test_who_may_only_read_can_read_the_counters(conn: Conn) -> None:
    make.insert_job(conn)
    conn.execute("SET default_transaction_read_only = on")
    assert gauge(conn) == {"queued": 1}
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        aggregate(conn)
