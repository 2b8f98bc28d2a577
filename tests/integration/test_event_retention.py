"""Retention of events: whole partitions go, no count is lost, and nobody's history goes too early."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest
from convertq.queue.counters import Counters, aggregate_counters
from convertq.queue.event_partitions import make_event_partitions
from convertq.queue.event_retention import EventRetention, RemovedEvents

from tests.conftest import Connect, Environment
from tests.integration.test_event_partitions import SIZE, called, jump, partitions, use_for, where
from tests.jobs import Conn, claimed, complete, database, events_of, insert_job, one, run, status_of
from tests.processes import run as run_convertq

Remove = Callable[[], list[RemovedEvents]]
Cleanup = Callable[..., subprocess.CompletedProcess[str]]
DAYS = 90
NO_EVENT = "removed 0 sources, 0 results, 0 events, 0 orphans, 0 temporary files, 0 jobs\n"


@pytest.fixture
def cleanup(environment: Environment) -> Cleanup:
    def cleanup(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_convertq("cleanup", *arguments, environment=environment())

    return cleanup


def write_events(conn: Conn, job_id: UUID, days_ago: float, number: int = 1) -> None:
    conn.execute(
        "INSERT INTO job_events (job_id, event_type, at)"
        " SELECT %s, 'downloaded', now() - %s * interval '1 day' FROM generate_series(1, %s)",
        [job_id, days_ago, number],
    )


def make_old(conn: Conn) -> None:
    """All that has happened so far happened a hundred days ago."""
    conn.execute("ALTER TABLE job_events DISABLE TRIGGER USER")
    conn.execute("UPDATE job_events SET at = now() - interval '100 days'")
    conn.execute("ALTER TABLE job_events ENABLE TRIGGER USER")


def finished_job(conn: Conn) -> UUID:
    job = claimed(conn)
    assert complete(conn, job)
    return job.id


def fill_first_partition(conn: Conn, number: int = 20) -> UUID:
    """With old events of a finished job; the next events go to the second one."""
    job_id = finished_job(conn)
    write_events(conn, job_id, 100, number - 4)
    make_old(conn)
    jump(conn, SIZE)
    finished_job(conn)
    return job_id


@pytest.fixture
def remove(bounded: Conn) -> Remove:
    return lambda: list(EventRetention(database(bounded), DAYS, dry_run=False).run())


def test_an_old_partition_is_dropped_and_the_counters_keep_what_they_counted(conn: Conn, cleanup: Cleanup) -> None:
    job_id = fill_first_partition(conn)
    done = cleanup()
    assert done.stdout == NO_EVENT.replace("0 events", "20 events"), done.stderr
    assert called(0) not in partitions(conn)
    assert where(conn) == {called(1): 4}
    assert status_of(conn, job_id) == "complete"
    after = Counters(database(conn))
    assert {status: jobs for status, jobs in after.by_label("jobs").items() if jobs} == {"complete": 2}
    assert (after("jobs_created"), after("jobs_completed")) == (2, 2)
    assert cleanup().stdout == NO_EVENT


def test_a_dry_run_lists_every_event_of_a_partition_and_drops_nothing(conn: Conn, cleanup: Cleanup) -> None:
    fill_first_partition(conn)
    lines = cleanup("--dry-run", "--json").stdout.splitlines()
    assert json.loads(lines[-1])["events"] == len(lines) - 1 == 20
    assert where(conn) == {called(0): 20, called(1): 4}


def test_a_partition_that_is_still_being_filled_is_never_dropped(conn: Conn, remove: Remove) -> None:
    job_id = finished_job(conn)
    make_old(conn)
    assert sum(each.count for each in remove()) == 4
    assert called(0) in partitions(conn)
    assert events_of(conn, job_id) == []


def test_a_job_that_is_not_finished_keeps_its_history_and_the_rest_goes(conn: Conn, remove: Remove) -> None:
    waiting = insert_job(conn, created_at="2020-01-01")
    fill_first_partition(conn)
    kept = events_of(conn, waiting)
    assert "queued" in kept
    removed = remove()
    assert called(0) in partitions(conn)
    assert events_of(conn, waiting) == kept
    assert where(conn)[called(0)] == len(kept)
    assert sum(each.count for each in removed) == 20


def test_a_partition_with_an_event_that_is_not_counted_stays(conn: Conn, connect: Connect, remove: Remove) -> None:
    """A transaction that is still open keeps the aggregation from counting what came after it."""
    with connect() as slow:
        slow.execute("BEGIN")
        slow.execute("SELECT pg_current_xact_id()")
        fill_first_partition(conn)
        assert remove() == []
        assert where(conn)[called(0)] == 20
        slow.execute("COMMIT")
    assert [each.count for each in remove()] == [20]
    assert Counters(database(conn))("jobs_completed") == 2


def test_an_event_that_was_written_since_the_check_keeps_its_partition(conn: Conn, remove: Remove) -> None:
    job_id = fill_first_partition(conn)
    aggregate_counters(database(conn))
    since = run(conn, "count_range", days=DAYS, after=0, upto=SIZE)[0]["xmin"]
    newest = one(conn, "SELECT last_value FROM job_events_id_seq")["last_value"]
    jump(conn, 1000)
    write_events(conn, job_id, 100)
    jump(conn, newest)
    finished_job(conn)
    aggregate_counters(database(conn))
    drop = {"name": called(0), "unchanged_since": since}
    assert run(conn, "drop_event_partition", **drop) == [{"outcome": "kept"}]
    assert [each.count for each in remove()] == [21]


def test_a_session_that_holds_the_table_delays_the_drop_and_no_event_is_lost(conn: Conn, connect: Connect) -> None:
    job_id = fill_first_partition(conn)
    aggregate_counters(database(conn))
    since = run(conn, "count_range", days=DAYS, after=0, upto=SIZE)[0]["xmin"]
    with connect() as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT FROM job_events LIMIT 1")
        drop = {"name": called(0), "unchanged_since": since}
        assert run(conn, "drop_event_partition", **drop) == [{"outcome": "locked"}]
        reader.execute("COMMIT")
    assert len(events_of(conn, job_id)) == 20
    assert run(conn, "drop_event_partition", **drop) == [{"outcome": "dropped"}]


def test_an_event_whose_partition_is_gone_goes_to_the_default_one_and_is_removed_when_it_is_old(
    conn: Conn, remove: Remove
) -> None:
    job_id = fill_first_partition(conn)
    remove()
    newest = one(conn, "SELECT last_value FROM job_events_id_seq")["last_value"]
    jump(conn, 1000)
    write_events(conn, job_id, 100)
    jump(conn, newest)
    finished_job(conn)
    assert where(conn) == {"job_events_default": 1, called(1): 8}
    assert [(each.job_id, each.count) for each in remove()] == [(job_id, 1)]
    assert where(conn) == {called(1): 8}


@pytest.mark.parametrize(
    ("days", "first_days_ago", "left"), [(90, 104.0, 2), (90, 106.0, 1), (59, 64.0, 2), (59, 66.0, 1)]
)
def test_old_events_wait_for_their_partition_for_16_days_or_a_week_at_most(
    conn: Conn, days: int, first_days_ago: float, left: int
) -> None:
    job_id = finished_job(conn)
    jump(conn, SIZE)
    make_old(conn)
    write_events(conn, job_id, first_days_ago)
    write_events(conn, job_id, days - 1)
    jump(conn, 2 * SIZE)
    finished_job(conn)
    list(EventRetention(database(conn), days, dry_run=False).run())
    assert where(conn) == {called(1): left, called(2): 4}


def test_at_a_slow_pace_a_month_goes_with_its_partitions(conn: Conn, remove: Remove) -> None:
    """A partition for every 15 days, and none of their events is deleted by itself."""
    job_id = finished_job(conn)
    make_old(conn)
    for days_ago in (120, 105, 90):
        write_events(conn, job_id, days_ago - 0.1, 30)
        write_events(conn, job_id, days_ago - 14.9, 30)
        use_for(conn, 15.1)
        make_event_partitions(database(conn))
    finished_job(conn)
    assert where(conn) == {called(0): 64, called(1): 60, called(2): 60, called(3): 4}
    assert [(each.name, each.count) for each in remove()] == [(called(0), 64), (called(1), 60)]
    assert where(conn) == {called(2): 60, called(3): 4}


@pytest.mark.parametrize("name", ["jobs", "job_events", "job_events_default", "pg_class", 'x"; DROP TABLE jobs; --'])
def test_nothing_but_a_full_partition_of_events_can_be_dropped(conn: Conn, name: str) -> None:
    fill_first_partition(conn)
    aggregate_counters(database(conn))
    outcome = run(conn, "drop_event_partition", name=name, unchanged_since="9223372036854775807")
    assert outcome == [{"outcome": "kept"}]
    assert where(conn) == {called(0): 20, called(1): 4}


def test_forget_removes_a_jobs_events_from_every_partition(conn: Conn, environment: Environment) -> None:
    job_id = finished_job(conn)
    for number in (1, 2, 50):
        jump(conn, number * SIZE)
        write_events(conn, job_id, 1)
    assert len(where(conn)) == 4
    done = run_convertq("forget", str(job_id), environment=environment())
    assert done.returncode == 0, done.stderr
    assert where(conn) == {}
    assert Counters(database(conn))("jobs_completed") == 1


def test_an_event_of_a_job_that_does_not_exist_is_refused_in_every_partition(conn: Conn) -> None:
    for number in (0, 1, 50):
        jump(conn, number * SIZE + 1)
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            conn.execute("INSERT INTO job_events (job_id, event_type) VALUES (gen_random_uuid(), 'queued')")
