"""`convertq forget`: everything of a job goes at once, in any state, and nothing else does."""

from __future__ import annotations

import itertools
import json
import subprocess
from typing import Any
from uuid import UUID, uuid4

import pytest
from convertq.queue.counters import Counters
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.forget import Forgetting, Verdict
from convertq.queue.job_events import JobEvents
from convertq.queue.settle import Settlement

from tests.conftest import Connect, Dirs, Environment
from tests.files import Files
from tests.jobs import (
    FITTING,
    PDF,
    Conn,
    begin,
    breaker,
    claim,
    claimed,
    complete,
    config,
    database,
    fail,
    insert_job,
    one,
    queue,
    queued_job,
    register_server,
    run,
    set_breaker,
    status_of,
    wait_until_blocked,
)
from tests.processes import run as run_convertq
from tests.waiting import eventually

TABLES = ("jobs", "job_events", "job_progress", "job_dependencies")


@pytest.fixture
def forget(environment: Environment) -> Any:
    def forget(*arguments: object, **overrides: object) -> subprocess.CompletedProcess[str]:
        return run_convertq("forget", *map(str, arguments), environment=environment(**overrides))

    return forget


def everywhere(conn: Conn, job_id: UUID) -> list[str]:
    """The tables that know of it."""
    columns = {"jobs": ["id"], "job_dependencies": ["job_id", "depends_on"]}
    return [
        table
        for table in TABLES
        for column in columns.get(table, ["job_id"])
        if conn.execute(f"SELECT FROM {table} WHERE {column} = %s".encode(), [job_id]).fetchall()
    ]


def with_files(conn: Conn, dirs: Dirs, status: str = "complete", **columns: Any) -> UUID:
    job_id = queued_job(conn, dirs, **({"status": status} | FITTING[status] | columns))
    Files(dirs.uploads, dirs.results).result(job_id).write_text("<x/>")
    return job_id


def depend(conn: Conn, job_id: UUID, on: UUID) -> None:
    run(conn, "add_dependency", id=job_id, depends_on=on)


@pytest.mark.parametrize("status", FITTING)
def test_a_job_in_any_state_goes_with_everything(conn: Conn, dirs: Dirs, forget: Any, status: str) -> None:
    job_id, other = with_files(conn, dirs, status), with_files(conn, dirs)
    if status == "processing":
        conn.execute("INSERT INTO job_progress (job_id, step) VALUES (%s, 'reading')", [job_id])
    done = forget(job_id)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{job_id} forgotten\n", "")
    assert everywhere(conn, job_id) == []
    assert everywhere(conn, other) == ["jobs", "job_events"]
    assert {path.stem for path in [*dirs.uploads.iterdir(), *dirs.results.iterdir()]} == {str(other)}


def test_a_dry_run_removes_nothing(conn: Conn, dirs: Dirs, forget: Any) -> None:
    job_id = with_files(conn, dirs)
    assert forget(job_id, "--dry-run").stdout == f"{job_id} would be forgotten\n"
    assert json.loads(forget(job_id, "--dry-run", "--json").stdout)["forgotten"] is False
    assert everywhere(conn, job_id) == ["jobs", "job_events"]
    assert len([*dirs.uploads.iterdir(), *dirs.results.iterdir()]) == 2


def test_each_id_gets_its_line_and_the_highest_code_wins(conn: Conn, dirs: Dirs, forget: Any) -> None:
    job_id, missing = with_files(conn, dirs), uuid4()
    done = forget(missing, job_id)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{job_id} forgotten\n", f"{missing}: no such job\n")
    lines = [json.loads(line) for line in forget(missing, "--json").stdout.splitlines()]
    assert lines == [{"id": str(missing), "forgotten": False, "reason": "no such job"}]


@pytest.mark.parametrize("arguments", [(), (str(uuid4()), "--owner", "x"), ("no-id",)])
def test_without_ids_or_an_owner_it_is_wrong_usage(forget: Any, arguments: tuple[str, ...]) -> None:
    assert forget(*arguments).returncode == 2


def test_every_job_of_an_owner_goes(conn: Conn, dirs: Dirs, forget: Any) -> None:
    for number in range(3):
        with_files(conn, dirs, owner_session_id="me", sha256=str(number) * 64)
    other, nobodys = with_files(conn, dirs, owner_session_id="other"), with_files(conn, dirs)
    assert forget("--owner", "me", "--dry-run").stdout == "would forget 3 jobs\n"
    assert forget("--owner", "me").stdout == "forgot 3 jobs\n"
    assert {row["id"] for row in conn.execute("SELECT id FROM jobs")} == {other, nobodys}
    done = forget("--owner", "me", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"dry_run": False, "forgotten": 0, "kept": 0})


def test_a_missing_directory_is_not_taken_for_an_empty_one(conn: Conn, dirs: Dirs, forget: Any) -> None:
    job_id = with_files(conn, dirs)
    done = forget(job_id, RESULTS_DIR="/nonexistent")
    assert (done.returncode, status_of(conn, job_id)) == (1, "complete")


# -- dependencies --


def test_a_job_that_another_one_waits_for_is_refused_unless_both_go(conn: Conn, dirs: Dirs, forget: Any) -> None:
    needed, dependant = with_files(conn, dirs, "failed"), with_files(conn, dirs, "uploaded")
    depend(conn, dependant, needed)
    done = forget(needed)
    reason = f"job {dependant} waits for it; forget that one too"
    assert (done.returncode, done.stdout, done.stderr) == (4, "", f"{needed}: {reason}\n")
    assert everywhere(conn, needed) == ["jobs", "job_events", "job_dependencies"]
    assert forget(needed, dependant).returncode == 0
    assert everywhere(conn, needed) == everywhere(conn, dependant) == []


def test_what_a_refused_job_waits_for_is_refused_too(conn: Conn, dirs: Dirs, forget: Any) -> None:
    first, second, third = (with_files(conn, dirs, status) for status in ("failed", "uploaded", "uploaded"))
    depend(conn, second, first)
    depend(conn, third, second)
    done = forget(first, second)
    assert (done.returncode, done.stdout) == (4, "")
    assert {row["id"] for row in conn.execute("SELECT id FROM jobs")} == {first, second, third}


def test_a_finished_dependant_is_no_obstacle(conn: Conn, dirs: Dirs, forget: Any) -> None:
    needed, dependant = with_files(conn, dirs), with_files(conn, dirs, "failed")
    conn.execute("ALTER TABLE job_dependencies DISABLE TRIGGER USER")
    depend(conn, dependant, needed)
    conn.execute("UPDATE jobs SET duplicate_of = %s WHERE id = %s", [needed, dependant])
    assert forget(needed).returncode == 0
    assert one(conn, "SELECT id, duplicate_of FROM jobs") == {"id": dependant, "duplicate_of": None}
    assert everywhere(conn, dependant) == ["jobs", "job_events"]


def test_many_jobs_in_a_chain_go_dependants_first(conn: Conn, dirs: Dirs, forget: Any) -> None:
    ids = [insert_job(conn, "uploaded", owner_session_id="me") for _ in range(450)]
    with conn.transaction():
        for job_id, needed in itertools.pairwise(ids):
            depend(conn, job_id, needed)
    assert forget("--owner", "me").stdout == "forgot 450 jobs\n"
    assert conn.execute("SELECT FROM jobs").fetchall() == []


# -- two at once --


@pytest.fixture
def forgetting(database_url: str, files: Files) -> Any:
    opened = Database.open(parse_database_url(database_url), "convertq:forget")
    yield Forgetting(opened, files)
    opened.close()


def test_a_row_that_is_locked_at_the_moment_is_waited_for(conn: Conn, dirs: Dirs, forgetting: Forgetting) -> None:
    job_id, other = with_files(conn, dirs), with_files(conn, dirs)
    with conn.transaction():
        conn.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [job_id])
        done = begin(lambda: list(forgetting.run([job_id, other])))
        eventually(lambda: not one(conn, "SELECT count(*) FROM jobs WHERE id = %s", other)["count"])
        assert not done.done()
    assert {each.verdict for each in done.result(10)} == {Verdict.FORGOTTEN}
    assert conn.execute("SELECT FROM jobs").fetchall() == []


def test_a_completion_under_way_ends_first_and_nothing_is_left_of_it(
    conn: Conn, connect: Connect, dirs: Dirs, files: Files, forgetting: Forgetting
) -> None:
    job = claimed(conn)
    with conn.transaction():
        assert queue(conn).lock_lease(job)
        done = begin(lambda: list(forgetting.run([job.id])))
        files.result(job.id).write_text("<x/>")
        assert complete(conn, job)
    assert [each.verdict for each in done.result(10)] == [Verdict.FORGOTTEN]
    assert list(dirs.results.iterdir()) == []


def test_a_dependant_and_what_it_waits_for_while_that_one_completes(
    conn: Conn, connect: Connect, forgetting: Forgetting
) -> None:
    """The completion holds the one and waits for the other; who forgets them holds the other and waits for nobody."""
    job = claimed(conn)
    dependant = insert_job(conn, "uploaded")
    depend(conn, dependant, job.id)
    holder, completing = connect(), connect()
    with holder.transaction():
        holder.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [dependant])
        completion = begin(lambda: complete(completing, job))
        wait_until_blocked(conn, completing)
        done = begin(lambda: list(forgetting.run([job.id, dependant])))
    assert completion.result(10) in (True, False)
    assert {each.verdict for each in done.result(20)} == {Verdict.FORGOTTEN}
    assert conn.execute("SELECT FROM jobs").fetchall() == []


def test_every_later_write_of_its_worker_finds_nothing(conn: Conn, files: Files, forgetting: Forgetting) -> None:
    job = claimed(conn)
    part = files.temporary_result(job.id, job.attempt, job.holder)
    part.write_text("<x/>")
    list(forgetting.run([job.id]))
    assert not part.exists()
    mine = queue(conn)
    assert not mine.extend_lease(job)
    assert not mine.report_progress(job, "reading", 1, 1, None)
    assert not mine.lock_lease(job)
    assert not mine.requeue_job(job, "shutdown")
    assert not fail(conn, job)
    assert not complete(conn, job)
    assert not mine.was_completed(job)
    assert conn.execute("SELECT FROM job_events UNION ALL SELECT FROM job_progress").fetchall() == []


def test_a_forgotten_trial_opens_the_breaker_again(conn: Conn, forgetting: Forgetting) -> None:
    job = claimed(conn)
    set_breaker(conn, "half_open", trial_job=job.id, probe_by=job.holder)
    list(forgetting.run([job.id]))
    assert (breaker(conn)["state"], breaker(conn)["trial_job"]) == ("open", None)


# -- the counters --


def test_the_gauge_goes_down_and_the_totals_stay(conn: Conn, connect: Connect, forgetting: Forgetting) -> None:
    """With events that are aggregated and such that are not: an open transaction keeps those that follow it."""
    register_server(conn)
    aggregated, fresh = claimed(conn), None
    assert complete(conn, aggregated, gateway_status=200, gateway_ms=400)
    run(conn, "aggregate_counters", batch=1000)
    with (old := connect()).transaction():
        old.execute("SELECT pg_current_xact_id()")
        fresh = claimed(conn)
        assert fail(conn, fresh)
        before = Counters(database(conn))
        list(forgetting.run([aggregated.id, fresh.id]))
        after = Counters(database(conn))
    run(conn, "aggregate_counters", batch=1000)
    at_last = Counters(database(conn))
    for counters in (after, at_last):
        assert set(counters.by_label("jobs").values()) <= {0}
        for name in ("jobs_created", "jobs_completed", "gateway_ms"):
            assert counters(name) == before(name), name
        for name in ("jobs_failed", "gateway_calls"):
            assert counters.by_label(name) == before.by_label(name), name


def test_a_settlement_takes_a_result_back_whose_job_was_forgotten(
    conn: Conn, files: Files, forgetting: Forgetting, settlement: Any
) -> None:
    """The file was put in place by a transaction that came to nothing, while its worker was paused."""
    job = claimed(conn)
    list(forgetting.run([job.id]))
    files.result(job.id).write_text("<x/>")
    settlement(job)
    assert not files.result(job.id).exists()


@pytest.fixture
def settlement(bounded: Conn, files: Files) -> Any:
    from convertq.queue.breaker import Breaker
    from convertq.queue.log.lines import Log

    def settle(job: Any) -> None:
        settings = config()
        log = Log(settings, "server", "worker")
        Settlement(queue(bounded), files, Breaker(settings, log), JobEvents()).settle(job, files.converted(job, PDF))
        assert not files.temporary_result(job.id, job.attempt, job.holder).exists()

    return settle


def test_a_claim_never_waits_for_who_forgets(conn: Conn, connect: Connect, forgetting: Forgetting) -> None:
    register_server(conn)
    first, second = insert_job(conn, priority=1), insert_job(conn)
    with (other := connect()).transaction():
        run(other, "lock_jobs", ids=[first])
        assert claim(conn).id == second
