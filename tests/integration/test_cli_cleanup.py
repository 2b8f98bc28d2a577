"""`convertq cleanup`: what goes, what stays, and that nobody is in its way."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from convertq.queue.database.database import Database
from convertq.queue.database.url import parse_database_url
from convertq.queue.manual_retry import retry_job
from convertq.queue.retention import Retention
from convertq.queue.submission import SubmissionOptions, SubmissionResult, Submitter

from tests.conftest import Connect, Convertq, Dirs, Environment
from tests.files import Files
from tests.jobs import (
    HOLDER,
    PDF,
    SERVER,
    Conn,
    begin,
    claimed,
    config,
    cursor,
    events_of,
    everything,
    insert_job,
    last_event,
    one,
    register_server,
    row_of,
    run,
    wait_until_blocked,
)
from tests.processes import run as run_convertq
from tests.waiting import WAIT_SECONDS

OLD, YOUNG = datetime.now(UTC) - timedelta(days=400), datetime.now(UTC) - timedelta(hours=1)
Open = Callable[[], Database]
NOTHING = "removed 0 sources, 0 results, 0 events, 0 orphans, 0 temporary files, 0 jobs\n"
ENDED = {"complete": "completed_at", "failed": "failed_at", "cancelled": "cancelled_at"}
TWO_DAYS = 2 * 86400


@pytest.fixture
def files(dirs: Dirs) -> Files:
    return Files(dirs.uploads, dirs.results)


@pytest.fixture
def cleanup(environment: Environment) -> Any:
    def cleanup(*arguments: str, **overrides: object) -> subprocess.CompletedProcess[str]:
        return run_convertq("cleanup", *arguments, environment=environment(**overrides))

    return cleanup


@pytest.fixture
def opened(database_url: str) -> Iterator[Callable[[], Database]]:
    """Connections as convertq itself makes them."""
    with contextlib.ExitStack() as stack:

        def opened() -> Database:
            database = Database.open(parse_database_url(database_url), "convertq:tests")
            stack.callback(database.close)
            return database

        yield opened


def with_source(conn: Conn, files: Files, status: str, ended: datetime = OLD, **columns: Any) -> UUID:
    job_id = uuid4()
    files.source(job_id).write_bytes(PDF)
    ended_at = {ENDED[status]: ended} if status in ENDED else {}
    given = {"id": job_id, "created_at": OLD, "upload_path": str(files.source(job_id)), **ended_at, **columns}
    return insert_job(conn, status, **given)


def with_result(conn: Conn, files: Files, expires_at: datetime | None = OLD) -> UUID:
    job_id = uuid4()
    files.result(job_id).write_text("<x/>")
    given = {"id": job_id, "result_path": str(files.result(job_id)), "expires_at": expires_at}
    return insert_job(conn, "complete", **given)


def aged(path: Path, seconds: float = TWO_DAYS) -> Path:
    if not path.exists():
        path.write_text("x")
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def old_event(conn: Conn, job_id: UUID, at: datetime = OLD) -> int:
    statement = "INSERT INTO job_events (job_id, event_type, at) VALUES (%s, 'downloaded', %s) RETURNING id"
    return int(one(conn, statement, job_id, at)["id"])


def event_ids(conn: Conn) -> set[int]:
    return {row["id"] for row in conn.execute("SELECT id FROM job_events")}


# -- what goes, what stays --


def test_an_expired_result_goes_and_its_job_stays_complete_and_says_so_once(
    conn: Conn, files: Files, cleanup: Any
) -> None:
    expired, kept = with_result(conn, files), with_result(conn, files, datetime.now(UTC) + timedelta(days=1))
    for_ever = with_result(conn, files, None)
    assert cleanup().stdout == "removed 0 sources, 1 result, 0 events, 0 orphans, 0 temporary files, 0 jobs\n"
    assert cleanup().stdout == NOTHING
    row = row_of(conn, expired)
    assert (row["status"], row["result_path"]) == ("complete", None)
    assert events_of(conn, expired).count("expired") == 1
    assert last_event(conn, expired)["meta"] == {"reason": "retention", "which": "result"}
    assert not files.result(expired).exists()
    assert all(files.result(job_id).exists() and row_of(conn, job_id)["result_path"] for job_id in (kept, for_ever))


@pytest.mark.parametrize("status", ["complete", "failed"])
def test_the_source_of_a_job_that_ended_long_ago_goes(conn: Conn, files: Files, cleanup: Any, status: str) -> None:
    old, young = with_source(conn, files, status), with_source(conn, files, status, YOUNG)
    assert cleanup().stdout.startswith("removed 1 source, 0 results")
    assert cleanup().stdout == NOTHING
    assert not files.source(old).exists()
    assert (row_of(conn, old)["upload_path"], row_of(conn, old)["status"]) == (None, status)
    assert files.source(young).exists()
    assert row_of(conn, young)["upload_path"]


@pytest.mark.parametrize("status", ["uploaded", "queued", "processing"])
def test_a_job_that_is_not_finished_keeps_everything_however_old(
    conn: Conn, files: Files, cleanup: Any, status: str
) -> None:
    job_id = with_source(conn, files, status, expires_at=OLD)
    aged(files.source(job_id))
    aged(files.result(job_id))
    old_event(conn, job_id)
    before = everything(conn)
    assert cleanup().stdout == NOTHING
    assert everything(conn) == before
    assert files.source(job_id).exists()
    assert files.result(job_id).exists()


def test_a_failed_job_without_its_source_says_so_in_its_timeline_and_to_retry(
    conn: Conn, files: Files, cleanup: Any, environment: Environment
) -> None:
    job_id = with_source(conn, files, "failed")
    assert cleanup().returncode == 0
    assert last_event(conn, job_id)["meta"] == {"reason": "retention", "which": "source"}
    refused = run_convertq("retry", str(job_id), environment=environment())
    assert refused.returncode == 4
    assert "its source file is gone" in refused.stderr


def test_the_source_of_a_foreign_row_that_never_named_it_goes_too(conn: Conn, files: Files, cleanup: Any) -> None:
    old, young = with_source(conn, files, "complete"), with_source(conn, files, "failed", YOUNG)
    conn.execute("UPDATE jobs SET upload_path = NULL")
    assert cleanup().stdout.startswith("removed 1 source, 0 results")
    assert (files.source(old).exists(), files.source(young).exists()) == (False, True)


def test_old_events_of_finished_jobs_go(conn: Conn, cleanup: Any) -> None:
    complete, failed, queued = (insert_job(conn, status) for status in ("complete", "failed", "queued"))
    gone = {old_event(conn, complete), old_event(conn, failed)}
    kept = {old_event(conn, queued), old_event(conn, complete, YOUNG)}
    before = event_ids(conn)
    assert cleanup().stdout == "removed 0 sources, 0 results, 2 events, 0 orphans, 0 temporary files, 0 jobs\n"
    assert cleanup().stdout == NOTHING
    assert event_ids(conn) == before - gone
    assert kept <= event_ids(conn)


def test_old_events_are_found_behind_a_hundred_thousand_young_ones(conn: Conn, cleanup: Any) -> None:
    job_id = insert_job(conn, "complete")
    conn.execute(
        "INSERT INTO job_events (job_id, event_type) SELECT %s, 'downloaded' FROM generate_series(1, 90000)", [job_id]
    )
    gone = old_event(conn, job_id)
    assert ", 1 event, " in cleanup().stdout
    assert gone not in event_ids(conn)


def test_an_event_that_is_not_in_the_counters_yet_stays(conn: Conn, connect: Connect, cleanup: Any) -> None:
    other = connect()
    with other.transaction():
        other.execute("SELECT pg_current_xact_id()")  # nothing after it can be counted while it runs
        event = old_event(conn, insert_job(conn, "complete"))
        assert cleanup().stdout == NOTHING
        assert event in event_ids(conn)
    assert ", 1 event, " in cleanup().stdout


def test_orphans_go_after_a_day_and_only_by_names_that_convertq_makes(
    conn: Conn, dirs: Dirs, files: Files, cleanup: Any
) -> None:
    gone = [aged(files.source(uuid4())), aged(files.result(uuid4()))]
    failed = aged(files.result(insert_job(conn, "failed")))
    fresh = [aged(files.source(uuid4()), 3600), aged(files.result(uuid4()), 3600)]
    names = ["invoice.pdf", f"{uuid4()}.PDF", f"{uuid4()}.pdf.bak", f"{uuid4().hex}.pdf", f"x{uuid4()}.pdf", "README"]
    foreign = [aged(dirs.uploads / name) for name in names] + [aged(dirs.uploads / f"{uuid4()}.xml")]
    target = aged(dirs.uploads / "target")
    link = files.source(uuid4())
    link.symlink_to(target)
    os.utime(link, (0, 0), follow_symlinks=False)
    (dirs.uploads / f"{uuid4()}.pdf").mkdir()
    assert cleanup().stdout == "removed 0 sources, 0 results, 0 events, 3 orphans, 0 temporary files, 0 jobs\n"
    assert [path for path in [*gone, failed] if path.exists()] == []
    assert [path for path in [*fresh, *foreign, target, link] if not path.is_symlink() and not path.exists()] == []
    assert link.is_symlink()


def test_temporary_files_go_after_a_day_but_not_those_of_a_running_attempt(
    conn: Conn, files: Files, cleanup: Any
) -> None:
    job = claimed(conn)
    gone = [
        aged(files.temporary_result(uuid4(), 1, HOLDER)),
        aged(files.temporary_source(uuid4())),
        aged(files.temporary_result(job.id, job.attempt + 1, HOLDER)),
    ]
    kept = [
        aged(files.temporary_result(job.id, job.attempt, HOLDER)),
        aged(files.temporary_source(uuid4()), 3600),
        aged(files.results / ".nfs000001.part"),
        aged(files.results / f".{'-' * 36}.1.x.part"),
    ]
    assert cleanup().stdout == "removed 0 sources, 0 results, 0 events, 0 orphans, 3 temporary files, 0 jobs\n"
    assert [path for path in gone if path.exists()] == []
    assert [path for path in kept if not path.exists()] == []


@pytest.mark.parametrize("status", ENDED)
def test_a_job_that_ended_long_ago_goes_with_all_its_rows_and_files(
    conn: Conn, files: Files, cleanup: Any, status: str
) -> None:
    job_id = with_source(conn, files, status)
    files.result(job_id).write_text("<x/>")
    recent = with_source(conn, files, status, ended=YOUNG)
    waiting = with_source(conn, files, "uploaded")
    assert cleanup(RETENTION_JOBS_DAYS=399, RETENTION_UPLOADS_DAYS=0).stdout.endswith(" 1 job\n")
    assert {row["id"] for row in conn.execute("SELECT id FROM jobs")} == {recent, waiting}
    assert not files.source(job_id).exists()
    assert not files.result(job_id).exists()
    assert conn.execute("SELECT FROM job_events WHERE job_id = %s", [job_id]).fetchall() == []


def test_no_job_goes_by_default(conn: Conn, files: Files, cleanup: Any) -> None:
    job_id = with_source(conn, files, "complete", ended=OLD - timedelta(days=30_000))
    assert cleanup().stdout == NOTHING.replace("0 sources", "1 source")
    assert row_of(conn, job_id)


@pytest.mark.parametrize("status", ENDED)
def test_a_job_that_an_unfinished_one_waits_for_stays(conn: Conn, files: Files, cleanup: Any, status: str) -> None:
    needed, ended = with_source(conn, files, status), with_source(conn, files, "complete")
    dependant, other = insert_job(conn, "uploaded"), insert_job(conn, "failed", created_at=OLD, failed_at=OLD)
    failed = insert_job(conn, "failed", created_at=OLD, failed_at=OLD)
    with conn.transaction():
        for job_id, depends_on in ((dependant, needed), (dependant, failed), (other, ended)):
            run(conn, "add_dependency", id=job_id, depends_on=depends_on)
    assert cleanup(RETENTION_JOBS_DAYS=1).stdout.endswith(" 2 jobs\n")
    assert {row["id"] for row in conn.execute("SELECT id FROM jobs")} == {needed, dependant, failed}
    assert one(conn, "SELECT count(*) FROM job_dependencies") == {"count": 2}


def test_many_jobs_of_the_same_moment_go_in_batches(conn: Conn, files: Files, cleanup: Any) -> None:
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, created_at, completed_at)"
        " SELECT 1, lpad(n::text, 64, '0'), 'complete', '2001-01-01', '2001-01-01' FROM generate_series(1, 1001) AS n"
    )
    kept = insert_job(conn, "complete", created_at="2001-01-01", completed_at="2001-01-01")
    waiting = insert_job(conn, "uploaded")
    failed = insert_job(conn, "failed")
    with conn.transaction():
        run(conn, "add_dependency", id=waiting, depends_on=kept)
        run(conn, "add_dependency", id=waiting, depends_on=failed)
    assert cleanup(RETENTION_JOBS_DAYS=1).stdout.endswith(" 1001 jobs\n")
    assert {row["id"] for row in conn.execute("SELECT id FROM jobs")} == {kept, waiting, failed}


def test_a_job_whose_file_cannot_be_removed_stays(conn: Conn, opened: Open, files: Files) -> None:
    job_id, other = with_source(conn, files, "failed"), with_source(conn, files, "failed")

    class Unreachable(Files):
        def job_locations(self, job: UUID, attempt: int, holder: str | None) -> list[str]:
            return ["/dev/null/x"] if job == job_id else super().job_locations(job, attempt, holder)

    there = Unreachable(files.uploads, files.results)
    found = list(Retention(opened(), there, config(RETENTION_JOBS_DAYS=1)).expire_jobs())
    assert {item.job_id: bool(item.error) for item in found} == {job_id: True, other: False}
    assert {row["id"] for row in conn.execute("SELECT id FROM jobs")} == {job_id}


def test_zero_keeps_for_ever(conn: Conn, files: Files, cleanup: Any) -> None:
    with_source(conn, files, "failed")
    job_id = with_result(conn, files)
    old_event(conn, job_id)
    leftover = with_source(conn, files, "complete")
    conn.execute("UPDATE jobs SET upload_path = NULL WHERE id = %s", [leftover])
    names = ("RETENTION_UPLOADS_DAYS", "RETENTION_RESULTS_DAYS", "RETENTION_EVENTS_DAYS", "RETENTION_JOBS_DAYS")
    assert cleanup(**dict.fromkeys(names, 0)).stdout == NOTHING


def test_a_symlink_in_the_place_of_a_source_stays(conn: Conn, files: Files, cleanup: Any) -> None:
    job_id = with_source(conn, files, "failed")
    target = files.uploads / "kept"
    files.source(job_id).rename(target)
    files.source(job_id).symlink_to(target)
    assert cleanup().returncode == 0
    assert target.exists()
    assert files.source(job_id).is_symlink()
    assert row_of(conn, job_id)["upload_path"] is None


# -- how it is said --


def test_a_dry_run_lists_exactly_what_a_run_then_removes_and_changes_nothing(
    conn: Conn, files: Files, cleanup: Any
) -> None:
    source, result = with_source(conn, files, "failed"), with_result(conn, files)
    event = old_event(conn, source)
    orphan, temp = aged(files.source(uuid4())), aged(files.temporary_source(uuid4()))
    with_source(conn, files, "queued")
    job = with_source(conn, files, "failed", created_at=OLD - timedelta(days=600), ended=OLD - timedelta(days=500))
    conn.execute("UPDATE jobs SET upload_path = NULL WHERE id = %s", [job])
    before, on_disk = everything(conn), sorted(files.uploads.iterdir())
    said = cleanup("--dry-run", RETENTION_JOBS_DAYS=600).stdout.splitlines()
    assert everything(conn) == before
    assert sorted(files.uploads.iterdir()) == on_disk
    assert [line.split()[:2] for line in said[:-1]] == [
        ["job", str(job)],
        ["source", str(files.source(source))],
        ["result", str(files.result(result))],
        ["event", str(event)],
        ["orphan", str(orphan)],
        ["temp", str(temp)],
    ]
    assert said[-1] == "would remove 1 source, 1 result, 1 event, 1 orphan, 1 temporary file, 1 job"
    done = cleanup(RETENTION_JOBS_DAYS=600).stdout
    assert done == "removed 1 source, 1 result, 1 event, 1 orphan, 1 temporary file, 1 job\n"


def test_json_is_an_object_for_each_thing_and_one_for_the_sum(conn: Conn, files: Files, cleanup: Any) -> None:
    job_id = with_source(conn, files, "failed")
    first, summary = (json.loads(line) for line in cleanup("--dry-run", "--json").stdout.splitlines())
    assert (first["kind"], first["job_id"], first["bytes"]) == ("source", str(job_id), len(PDF))
    counts = {"sources": 1, "results": 0, "events": 0, "orphans": 0, "temp_files": 0, "jobs": 0}
    assert summary == {"dry_run": True, **counts, "bytes": len(PDF), "failed": 0}
    assert json.loads(cleanup("--json").stdout) == {**summary, "dry_run": False}


# -- what can go wrong --


def test_a_run_that_dies_between_the_file_and_the_row_is_finished_by_the_next(
    conn: Conn, files: Files, cleanup: Any
) -> None:
    job_id = with_result(conn, files)
    conn.execute(
        "CREATE FUNCTION fall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'fell'; END $$;"
        "CREATE TRIGGER fall BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION fall()"
    )
    assert cleanup().returncode == 1
    assert not files.result(job_id).exists()
    assert row_of(conn, job_id)["result_path"] is not None
    conn.execute("DROP TRIGGER fall ON jobs")
    assert cleanup().stdout.startswith("removed 0 sources, 1 result,")
    assert row_of(conn, job_id)["result_path"] is None
    assert events_of(conn, job_id).count("expired") == 1


def test_a_file_that_cannot_be_removed_is_said_and_its_row_keeps_it(conn: Conn, opened: Open, files: Files) -> None:
    stuck = [with_source(conn, files, "failed", upload_path="x") for _ in range(3)]
    not_a_directory = files.uploads / "file"
    not_a_directory.write_text("")
    retention = Retention(opened(), Files(not_a_directory, files.results), config())
    assert {(item.job_id, item.error) for item in retention.expire_sources()} == {
        (job_id, "not a directory") for job_id in stuck
    }
    assert all(row_of(conn, job_id)["upload_path"] for job_id in stuck)


def test_files_of_a_batch_are_removed_side_by_side(
    conn: Conn, opened: Open, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits until all the others are at it as well: one after another they would wait in vain."""
    jobs = {with_source(conn, files, "failed") for _ in range(4)}
    together, unlink = threading.Barrier(len(jobs), timeout=WAIT_SECONDS), Path.unlink

    def wait_and_unlink(path: Path) -> None:
        together.wait()
        unlink(path)

    monkeypatch.setattr(Path, "unlink", wait_and_unlink)
    assert {item.job_id for item in Retention(opened(), files, config()).expire_sources()} == jobs
    assert list(files.uploads.iterdir()) == []


def test_an_interrupted_batch_ends_its_unlinks_before_its_locks(
    conn: Conn, connect: Connect, opened: Open, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, job_id = with_source(conn, files, "failed"), with_source(conn, files, "failed", OLD + timedelta(days=1))
    at_work, go_on = threading.Event(), threading.Event()

    def linger(path: Path) -> None:
        if path == files.source(first):
            assert at_work.wait(WAIT_SECONDS)
            raise RuntimeError("as if it were interrupted")
        at_work.set()
        assert go_on.wait(WAIT_SECONDS)

    monkeypatch.setattr(Path, "unlink", linger)
    removing = begin(lambda: list(Retention(opened(), files, config()).expire_sources()))
    with pytest.raises(TimeoutError):
        removing.result(0.5)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        conn.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE NOWAIT", [job_id])
    go_on.set()
    with pytest.raises(RuntimeError):
        removing.result(10)
    assert row_of(conn, job_id)["upload_path"]


def test_a_directory_that_is_not_mounted_is_not_taken_for_an_empty_one(
    conn: Conn, files: Files, cleanup: Any, tmp_path: Path
) -> None:
    job_id = with_source(conn, files, "failed")
    refused = cleanup(UPLOADS_DIR=tmp_path / "missing")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "missing is not there: is its share mounted?" in refused.stderr
    assert row_of(conn, job_id)["upload_path"]


# -- two at once --


def submit_again(database: Database, files: Files) -> SubmissionResult:
    asked = SubmissionOptions(owner="o", mapping="pt_simon_invoice_v1")
    source = files.uploads.parent / "again.pdf"
    source.write_bytes(PDF)
    return Submitter(database, files, config()).submit_file(source, asked).how


def submitted_and_failed(conn: Conn, database: Database, files: Files) -> UUID:
    assert submit_again(database, files) is SubmissionResult.CREATED
    job_id: UUID = one(conn, "SELECT id FROM jobs")["id"]
    conn.execute(
        "UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN', failed_at = %(at)s, created_at = %(at)s",
        {"at": OLD},
    )
    return job_id


def test_an_upload_that_comes_while_cleanup_removes_the_old_one_waits_and_then_has_its_file(
    conn: Conn, connect: Connect, opened: Open, files: Files
) -> None:
    job_id = submitted_and_failed(conn, opened(), files)
    conn.execute(
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;"
        "CREATE TRIGGER pause BEFORE UPDATE OF upload_path ON jobs FOR EACH ROW EXECUTE FUNCTION pause()"
    )
    cleaning, submitting = opened(), opened()
    with conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(1)")  # cleanup stops between the unlink and the commit
        removed = begin(lambda: list(Retention(cleaning, files, config()).expire_sources()))
        wait_until_blocked(connect(), cleaning.connection)
        assert not files.source(job_id).exists()
        again = begin(lambda: submit_again(submitting, files))
        wait_until_blocked(connect(), submitting.connection)
    assert [item.job_id for item in removed.result(10)] == [job_id]
    assert again.result(10) is SubmissionResult.REQUEUED
    row = row_of(conn, job_id)
    assert (row["status"], row["upload_path"]) == ("queued", str(files.source(job_id)))
    assert files.source(job_id).read_bytes() == PDF


def test_cleanup_passes_by_a_job_that_is_being_queued_again(conn: Conn, opened: Open, files: Files) -> None:
    job_id = submitted_and_failed(conn, opened(), files)
    old_event(conn, job_id)
    other = opened()
    with conn.transaction():
        assert run(conn, "retry_jobs", ids=[job_id])
        assert list(Retention(other, files, config()).run()) == []
    assert files.source(job_id).exists()
    assert list(Retention(other, files, config()).run()) == []


def test_a_retry_does_not_queue_a_job_whose_source_cleanup_has_just_removed(
    conn: Conn, opened: Open, files: Files, connect: Connect
) -> None:
    job_id = submitted_and_failed(conn, opened(), files)
    retrying = opened()
    with conn.transaction():  # as cleanup does: locked, unlinked, not committed yet
        conn.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [job_id])
        again = begin(lambda: retry_job(retrying, files, job_id))
        wait_until_blocked(connect(), retrying.connection)
        files.source(job_id).unlink()
    assert again.result(10) is False
    assert row_of(conn, job_id)["status"] == "failed"


def test_two_cleanups_at_once_remove_everything_once(conn: Conn, files: Files, convertq: Convertq) -> None:
    ids = [with_result(conn, files) for _ in range(500)]
    both = [convertq("cleanup", "--json") for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert sum(json.loads(each.lines[-1])["results"] for each in both) == len(ids)
    [row] = conn.execute("SELECT count(*) AS events FROM job_events WHERE event_type = 'expired'").fetchall()
    assert row["events"] == len(ids)


def test_claims_go_on_while_thousands_of_expired_jobs_are_cleaned_up(conn: Conn, convertq: Convertq) -> None:
    fill(conn, 8_000)
    plan = str(conn.execute(b"EXPLAIN " + first_batch()).fetchall())
    assert "jobs_with_a_source_to_expire" in plan
    assert "Seq Scan" not in plan
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status) SELECT 1, md5(n::text), 'queued' FROM generate_series(1, 3000) n"
    )
    register_server(conn)
    conn.execute("SET lock_timeout = '1s'")  # a claim that waits longer for a lock of the cleanup fails
    mine, claims = cursor(conn), 0
    cleaning = convertq("cleanup", "--json")
    while cleaning.popen.poll() is None and claims < 3000:
        assert mine.claim_job(SERVER, HOLDER).job is not None
        claims += 1
    assert cleaning.wait() == 0
    found = json.loads(cleaning.lines[-1])
    assert (found["sources"], found["results"], found["events"]) == (8_000, 8_000, 16_000)
    assert claims > 100


def fill(conn: Conn, count: int) -> None:
    """Complete jobs from long ago, with old events, written around the triggers."""
    conn.execute("SET session_replication_role = replica")
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, created_at, completed_at, expires_at, upload_path, result_path)"
        " SELECT 1, md5(n::text), 'complete', %(at)s, %(at)s, %(at)s, 'x', 'x' FROM generate_series(1, %(count)s) n",
        {"at": OLD, "count": count},
    )
    conn.execute("INSERT INTO job_events (job_id, event_type, at) SELECT id, 'created', %s FROM jobs", [OLD])
    conn.execute("INSERT INTO job_events (job_id, event_type, at) SELECT id, 'complete', %s FROM jobs", [OLD])
    conn.execute("RESET session_replication_role")
    conn.execute("ANALYZE jobs, job_events")


def first_batch() -> bytes:
    from convertq import sql

    named = {"days": "7", "after_at": "'-infinity'", "after_id": "gen_random_uuid()", "limit": "200"}
    text = sql.query("lock_expired_sources", "public").decode()
    for name, value in named.items():
        text = text.replace(f"%({name})s", value)
    return text.encode()
