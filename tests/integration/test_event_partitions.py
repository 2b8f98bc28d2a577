"""The partitions of job_events: where events go, who creates them, and what is never in the way of a job."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest
from convertq.queue.counters import Counters, aggregate_counters
from convertq.queue.doctor import queue as checks
from convertq.queue.event_partitions import make_event_partitions
from convertq.queue.stats import get_stats

from tests.conftest import Connect, Environment, Supervisor
from tests.findings import BAD, OK, WARN, MakeContext, find, state_of
from tests.integration.test_plans import nodes
from tests.jobs import Conn, claimed, complete, config, database, events_of, insert_job, insert_jobs, one, run
from tests.processes import run as run_convertq
from tests.waiting import eventually

SIZE = 10_000_000
LOCK_TIMEOUT_SECONDS = 0.1
WHERE = "SELECT tableoid::regclass::text AS partition, count(*) AS events FROM job_events GROUP BY 1 ORDER BY 1"


def jump(conn: Conn, last_id: int) -> None:
    """The next event gets the id after this one."""
    conn.execute("SELECT setval('job_events_id_seq', %s)", [last_id])


def partitions(conn: Conn) -> list[str]:
    return [row["name"] for row in conn.execute("SELECT name FROM event_partitions() ORDER BY first_id")]


def where(conn: Conn) -> dict[str, int]:
    return {row["partition"]: row["events"] for row in conn.execute(WHERE)}


def called(number: int) -> str:
    """The name of the partition with this number, from 0."""
    return f"job_events_{number * SIZE + 1}_{(number + 1) * SIZE}"


def test_events_go_to_the_partition_of_their_id(conn: Conn) -> None:
    assert partitions(conn) == [called(0), called(1), called(2), called(3)]
    insert_job(conn)  # events 1 and 2
    jump(conn, SIZE - 1)
    insert_job(conn)  # the last of the first partition, and the first of the second
    assert where(conn) == {called(0): 3, called(1): 1}


def test_the_next_partitions_are_created_when_the_writers_come_near(conn: Conn) -> None:
    assert make_event_partitions(database(conn)) == 0
    jump(conn, SIZE + 1)
    assert make_event_partitions(database(conn)) == 1
    assert partitions(conn)[-1] == called(4)
    assert make_event_partitions(database(conn)) == 0


def use_for(conn: Conn, days: float) -> None:
    """The current partition has been in use for so much longer."""
    make_event_partitions(database(conn))
    conn.execute("UPDATE event_pace SET begun_at = begun_at - %s * interval '1 day'", [days])


def test_a_new_partition_is_begun_after_15_days_and_one_more_is_created(conn: Conn) -> None:
    insert_job(conn)  # events 1 and 2
    use_for(conn, 14.9)
    assert make_event_partitions(database(conn)) == 0
    use_for(conn, 0.2)
    assert make_event_partitions(database(conn)) == 1
    assert partitions(conn)[-1] == called(4)
    aggregate_counters(database(conn))
    assert one(conn, "SELECT mark_id FROM counters_position")["mark_id"] == SIZE + 1  # an id that nobody gets
    job = insert_job(conn)
    assert where(conn) == {called(0): 2, called(1): 2}
    assert one(conn, "SELECT min(id) FROM job_events WHERE job_id = %s", job)["min"] == SIZE + 2
    assert make_event_partitions(database(conn)) == 0  # the new one has been in use for no time
    aggregate_counters(database(conn))
    assert Counters(database(conn))("jobs_created") == 2


def test_a_partition_that_was_filled_counts_its_days_from_the_beginning(conn: Conn) -> None:
    use_for(conn, 20)
    jump(conn, SIZE + 5)
    assert make_event_partitions(database(conn)) == 1
    assert one(conn, "SELECT last_value FROM job_events_id_seq")["last_value"] == SIZE + 5
    newest = one(conn, "SELECT max(first_id), max(begun_at) > now() - interval '1 day' AS is_new FROM event_pace")
    assert newest == {"max": SIZE + 1, "is_new": True}


def test_no_partition_is_begun_while_the_current_one_is_empty_or_the_next_is_missing(conn: Conn) -> None:
    use_for(conn, 20)
    assert make_event_partitions(database(conn)) == 0
    insert_job(conn)
    conn.execute(f"DROP TABLE {called(1)}".encode())
    assert one(conn, "SELECT begin_event_partition() AS outcome")["outcome"] == "enough"
    assert make_event_partitions(database(conn)) == 2  # the missing one, and one after a new one was begun
    assert one(conn, "SELECT last_value FROM job_events_id_seq")["last_value"] == SIZE + 1


def test_two_that_begin_a_partition_at_once_begin_one(conn: Conn, connect: Connect) -> None:
    """The one that comes later must not set the sequence back: ids would be given twice."""
    insert_job(conn)
    use_for(conn, 20)
    with connect() as first, connect() as second:
        first.execute("BEGIN")
        assert run(first, "make_event_partition", ahead=3) == [{"outcome": "begun"}]
        assert run(second, "make_event_partition", ahead=3) == [{"outcome": "locked"}]
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            insert_job(second)  # nobody draws an id meanwhile
        first.execute("COMMIT")
        assert run(second, "make_event_partition", ahead=3) == [{"outcome": "made"}]
        assert run(second, "make_event_partition", ahead=3) == [{"outcome": "enough"}]
    insert_job(conn)
    assert where(conn) == {called(0): 2, called(1): 2}


def test_no_partition_is_begun_while_a_transaction_can_still_write_to_the_current_one(
    conn: Conn, connect: Connect
) -> None:
    insert_job(conn)
    use_for(conn, 20)
    with connect() as writer:
        writer.execute("BEGIN")
        insert_job(writer)
        assert run(conn, "make_event_partition", ahead=3) == [{"outcome": "locked"}]
        insert_job(conn)  # others go on
        insert_job(writer)
        writer.execute("COMMIT")
    assert make_event_partitions(database(conn)) == 1
    insert_job(conn)
    assert where(conn) == {called(0): 8, called(1): 2}


def test_a_partition_has_all_that_the_table_has(conn: Conn) -> None:
    jump(conn, SIZE + 1)
    make_event_partitions(database(conn))
    parts = {
        "indexes": "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass",
        "triggers": "SELECT array_agg(tgname ORDER BY tgname) AS count FROM pg_trigger"
        " WHERE tgrelid = %s::regclass AND NOT tgisinternal",
        "constraints": "SELECT count(*) FROM pg_constraint WHERE conrelid = %s::regclass AND contype <> 'n'",
    }
    for name, query in parts.items():
        assert one(conn, query, called(4))["count"] == one(conn, query, "job_events")["count"], name
    assert one(conn, "SELECT reloptions FROM pg_class WHERE oid = %s::regclass", called(4))["reloptions"]


@pytest.mark.parametrize("table", ["job_events", called(0), "job_events_default"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET at = now()", "DELETE FROM {}", "TRUNCATE {}"])
def test_no_partition_lets_its_events_be_changed(conn: Conn, table: str, statement: str) -> None:
    insert_job(conn)
    jump(conn, 50 * SIZE)
    insert_job(conn)
    assert where(conn) == {called(0): 2, "job_events_default": 2}
    with pytest.raises(psycopg.errors.RestrictViolation):
        conn.execute(statement.format(table).encode())


def test_without_a_partition_events_go_to_the_default_one_and_jobs_are_converted(conn: Conn) -> None:
    jump(conn, 50 * SIZE)
    job = claimed(conn)
    assert complete(conn, job)
    assert events_of(conn, job) == ["created", "queued", "processing", "complete"]
    assert where(conn) == {"job_events_default": 4}
    aggregate_counters(database(conn))
    assert Counters(database(conn))("jobs_completed") == 1


def test_after_events_in_the_default_partition_the_next_ranges_get_theirs(conn: Conn) -> None:
    """The range that has events there stays there."""
    jump(conn, 50 * SIZE)
    insert_job(conn)
    assert make_event_partitions(database(conn)) == 3
    assert partitions(conn)[-3:] == [called(51), called(52), called(53)]
    jump(conn, 51 * SIZE)
    insert_job(conn)
    assert where(conn) == {"job_events_default": 2, called(51): 2}


TRIED_SECONDS = 4.0


def test_a_long_transaction_delays_the_partition_and_not_the_writers(conn: Conn, connect: Connect) -> None:
    jump(conn, SIZE + 1)
    with connect() as holder, connect() as writer:
        holder.execute("BEGIN")
        insert_job(holder)
        waits: list[float] = []
        enough = threading.Event()

        def write() -> None:
            while not enough.is_set():
                began = time.monotonic()
                insert_job(writer)
                waits.append(time.monotonic() - began)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert make_event_partitions(database(conn), seconds=TRIED_SECONDS) == 0
            holder.execute("COMMIT")
            eventually(lambda: make_event_partitions(database(conn), seconds=1.0) == 1)
        finally:
            enough.set()
            thread.join()
    assert len(waits) > 10
    assert max(waits) < TRIED_SECONDS  # one try delays a writer for LOCK_TIMEOUT_SECONDS, and not all tries together
    assert called(4) in partitions(conn)


def test_two_that_create_partitions_at_once_create_each_once(conn: Conn, connect: Connect) -> None:
    jump(conn, 9 * SIZE)
    made: list[int] = []
    with connect() as first, connect() as second:
        threads = [
            threading.Thread(target=lambda each=each: made.append(make_event_partitions(database(each), seconds=5)))
            for each in (first, second)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(made) == 4
    assert partitions(conn)[-4:] == [called(number) for number in (8, 9, 10, 11)]


def test_migrate_run_again_creates_what_is_missing(environment: Environment, conn: Conn) -> None:
    jump(conn, SIZE + 1)
    done = run_convertq("migrate", environment=environment())
    assert (done.returncode, done.stdout) == (0, "nothing to do: the schema public is up to date\n")
    assert partitions(conn)[-1] == called(4)


def test_a_supervisor_creates_what_is_missing(supervisor: Supervisor, conn: Conn) -> None:
    jump(conn, SIZE + 1)
    supervisor()
    eventually(lambda: called(4) in partitions(conn))


def test_doctor_counts_the_partitions_ahead(make_context: MakeContext, conn: Conn) -> None:
    assert state_of(checks.check_history, make_context()) is OK
    jump(conn, SIZE + 1)
    assert state_of(checks.check_history, make_context()) is WARN
    jump(conn, 50 * SIZE)
    assert state_of(checks.check_history, make_context()) is BAD
    [finding] = find(checks.check_history, make_context(), fix=True)
    assert (finding.state, finding.fixed) == (OK, "created 4")


def test_doctor_reports_events_in_the_default_partition(make_context: MakeContext, conn: Conn) -> None:
    jump(conn, 50 * SIZE)
    insert_job(conn)
    assert state_of(checks.check_history, make_context()) is BAD
    [finding] = find(checks.check_history, make_context(), fix=True)
    assert (finding.state, finding.fixed) == (WARN, "created 3")
    assert "2 events are in the default one" in finding.what


def test_an_event_of_an_old_transaction_is_counted_after_the_floor_has_moved(conn: Conn, connect: Connect) -> None:
    """The floor waits for a transaction that began before the mark."""
    with connect() as slow:
        slow.execute("BEGIN")
        insert_job(slow)
        for _ in range(3):
            insert_jobs(conn, 5)
            aggregate_counters(database(conn))
        slow.execute("COMMIT")
    for _ in range(3):
        insert_jobs(conn, 5)
        aggregate_counters(database(conn))
    reached = one(conn, "SELECT * FROM counters_position")
    assert reached["floor_id"] > 0
    assert Counters(database(conn))("jobs_created") == 31
    assert not conn.execute("SELECT FROM job_events WHERE NOT is_aggregated(xact_id, id)").fetchall()


def test_there_is_no_mark_in_a_transaction_that_has_written(conn: Conn) -> None:
    """Its id is older than the ids of events that others have drawn meanwhile."""
    with conn.transaction():
        insert_job(conn)
        run(conn, "mark_events")
        assert one(conn, "SELECT mark_xact FROM counters_position")["mark_xact"] is None
    run(conn, "mark_events")
    assert one(conn, "SELECT mark_id FROM counters_position")["mark_id"] == 2


@pytest.fixture
def long_history(conn: Conn) -> Conn:
    """80,000 events in four partitions, all but the last ones aggregated."""
    job = claimed(conn)
    for number in range(4):
        jump(conn, number * SIZE + 100)
        conn.execute(
            "INSERT INTO job_events (job_id, event_type, meta) SELECT %s, 'downloaded', '{}'"
            " FROM generate_series(1, 20000)",
            [job.id],
        )
        aggregate_counters(database(conn), seconds=10)
    for _ in range(2):  # the floor follows one mark behind
        insert_job(conn)
        aggregate_counters(database(conn))
    conn.execute("ANALYZE")
    return conn


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM counted_so_far()",
        "SELECT FROM job_events WHERE id > 30000100 AND id <= 30005000 ORDER BY id LIMIT 5000",
    ],
)
def test_what_reads_new_events_skips_old_partitions(long_history: Conn, statement: str) -> None:
    before = reads(long_history)
    long_history.execute(statement.encode())
    after = reads(long_history)
    assert {name for name in after if after[name] != before.get(name)} <= {called(3), "job_events_default"}


def test_stats_read_no_partition_that_is_older_than_a_day(long_history: Conn) -> None:
    """Unless there are too few calls to show in the newer ones."""
    conn = long_history
    conn.execute("INSERT INTO event_pace SELECT %s, now() - interval '26 hours'", [3 * SIZE + 1])
    job = insert_job(conn)
    called_gateway = (
        "INSERT INTO job_events (job_id, event_type, meta)"
        """ SELECT %s, 'retry', '{"gateway_ok": true, "gateway_ms": 7}' FROM generate_series(1, %s)"""
    )
    jump(conn, 2 * SIZE + 50_000)
    conn.execute(called_gateway, [job, 1500])
    jump(conn, 3 * SIZE + 50_000)
    conn.execute(called_gateway, [job, 900])
    assert get_stats(database(conn), config())["gateway_seconds"]["calls"] == 1000
    conn.execute(called_gateway, [job, 100])
    aggregate_counters(database(conn))
    before = reads(conn)
    stats = get_stats(database(conn), config())
    after = reads(conn)
    assert stats["gateway_seconds"]["calls"] == 1000
    assert stats["breaker"]["calls"] == config().circuit_window
    assert {name for name in after if after[name] != before.get(name)} <= {called(3), "job_events_default"}


def test_a_new_job_and_a_foreign_change_look_for_events_in_the_newest_partition_alone(long_history: Conn) -> None:
    before = reads(long_history)
    job = insert_job(long_history)
    long_history.execute("UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN' WHERE id = %s", [job])
    after = reads(long_history)
    assert {name for name in after if after[name] != before.get(name)} <= {called(3), "job_events_default"}


def reads(conn: Conn) -> dict[str, int]:
    """Index scans of each partition, as far as this session has reported them."""
    conn.execute("SELECT pg_stat_force_next_flush()")
    rows = conn.execute(
        "SELECT relname, idx_scan + seq_scan AS reads FROM pg_stat_user_tables WHERE relname ~ '^job_ev'"
    )
    return {row["relname"]: row["reads"] for row in rows}


def test_the_aggregation_starts_no_scan_of_an_old_partition(long_history: Conn) -> None:
    before = reads(long_history)
    insert_jobs(long_history, 10)
    aggregate_counters(database(long_history))
    after = reads(long_history)
    assert {name for name in after if after[name] != before.get(name)} <= {called(3), "job_events_default"}


def test_a_jobs_events_are_read_by_the_index_of_each_partition(long_history: Conn) -> None:
    text = "EXPLAIN (FORMAT JSON) SELECT event_type FROM job_events WHERE job_id = gen_random_uuid() ORDER BY id"
    plan = one(long_history, text)["QUERY PLAN"][0]["Plan"]
    assert not [node for node in nodes(plan) if node["Node Type"] == "Seq Scan" and node["Plan Rows"] > 100]


def test_a_user_without_the_right_creates_nothing_and_goes_on(conn: Conn) -> None:
    """After an upgrade, before roles.sql has run: see test_roles.py for the right itself."""
    conn.execute("CREATE ROLE part_reader")
    try:
        conn.execute("SET ROLE part_reader")
        assert make_event_partitions(database(conn)) == 0
    finally:
        conn.execute("RESET ROLE")
        conn.execute("DROP ROLE part_reader")
