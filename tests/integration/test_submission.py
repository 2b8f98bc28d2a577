"""Submitting: one job per content, its file whole under its id, and nothing left of what fails."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from convertq.queue.config import Config, read_config
from convertq.queue.database.database import Database
from convertq.queue.errors import Code
from convertq.queue.submission import Submission, SubmissionOptions, SubmissionResult, Submitter, recorded_name
from convertq.queue.submitted_path import UnchangedFile, open_submitted

from tests.conftest import Dirs, Environment
from tests.files import Files
from tests.waiting import WAIT_SECONDS, Row

PDF = b"%PDF-1.4\n" + b"x" * 3000
OPTIONS = SubmissionOptions("me", "pt_simon_invoice_v1")
Conn = psycopg.Connection[Row]


@pytest.fixture
def config(environment: Environment) -> Config:
    return read_config(environment(MAX_UPLOAD_BYTES=5000))


@pytest.fixture
def files(dirs: Dirs) -> Files:
    return Files(dirs.uploads, dirs.results)


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    opened = Database.open(config.database, "convertq:tests")
    yield opened
    opened.close()


@pytest.fixture
def submitter(database: Database, files: Files, config: Config) -> Submitter:
    return Submitter(database, files, config)


@pytest.fixture
def submit(submitter: Submitter, tmp_path: Path) -> Callable[..., Submission]:
    def submit(content: bytes = PDF, name: str = "a.pdf", options: SubmissionOptions = OPTIONS) -> Submission:
        path = tmp_path / name
        path.write_bytes(content)
        return submitter.submit_file(path, options)

    return submit


Submit = Callable[..., Submission]


def job(conn: Conn, job_id: UUID | None) -> Row:
    found = conn.execute("SELECT * FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert found
    return found


def count(conn: Conn) -> int:
    row = conn.execute("SELECT count(*) AS jobs FROM jobs").fetchone()
    assert row
    return int(row["jobs"])


def events(conn: Conn, job_id: UUID | None) -> list[tuple[str, dict[str, Any]]]:
    rows = conn.execute("SELECT event_type, meta FROM job_events WHERE job_id = %s ORDER BY id", [job_id])
    return [(row["event_type"], row["meta"]) for row in rows]


def fail(conn: Conn, job_id: UUID | None) -> None:
    conn.execute("UPDATE jobs SET status = 'failed', error_code = 'GW_4XX', attempt_count = 3 WHERE id = %s", [job_id])


def complete(conn: Conn, job_id: UUID | None, result: Path) -> None:
    result.write_text("<x/>")
    lease = "leased_by = 'x/1', lease_expires_at = now() + interval '1 hour'"
    conn.execute(f"UPDATE jobs SET status = 'processing', {lease} WHERE id = %s", [job_id])
    conn.execute(
        "UPDATE jobs SET status = 'complete', leased_by = NULL, lease_expires_at = NULL, completed_at = now(),"
        " result_path = %s WHERE id = %s",
        [str(result), job_id],
    )


def test_a_new_file_is_stored_under_its_id_and_queued(submit: Submit, conn: Conn, files: Files) -> None:
    done = submit()
    assert done.id
    assert done.how is SubmissionResult.CREATED
    row = job(conn, done.id)
    assert (row["status"], row["bytes"], row["owner_session_id"]) == ("queued", len(PDF), "me")
    assert row["sha256"] == hashlib.sha256(PDF).hexdigest()
    assert files.source(done.id).read_bytes() == PDF
    assert files.source(done.id).stat().st_mode & 0o777 == 0o640
    assert [name for name, _ in events(conn, done.id)] == ["created", "queued"]


def test_the_same_content_joins_the_job_in_progress(submit: Submit, conn: Conn, dirs: Dirs) -> None:
    first, second = submit(), submit(name="other.pdf")
    assert (second.id, second.how) == (first.id, SubmissionResult.JOINED)
    assert count(conn) == 1
    assert [path.name for path in dirs.uploads.iterdir()] == [f"{first.id}.pdf"]


def test_owners_and_mappings_do_not_share_jobs(submit: Submit, conn: Conn) -> None:
    submit()
    submit(options=SubmissionOptions("you", OPTIONS.mapping))
    submit(options=SubmissionOptions("me", "text_v1"))
    assert count(conn) == 3


def test_a_failed_job_is_queued_again_from_the_new_file(submit: Submit, conn: Conn, files: Files) -> None:
    first = submit()
    assert first.id
    fail(conn, first.id)
    files.source(first.id).unlink()
    files.result(first.id).write_text("<stale/>")
    second = submit(options=SubmissionOptions("me", OPTIONS.mapping, pretty=False, priority=7))
    assert (second.id, second.how) == (first.id, SubmissionResult.REQUEUED)
    row = job(conn, first.id)
    assert (row["status"], row["attempt_count"], row["error_code"]) == ("queued", 0, None)
    assert (row["pretty"], row["priority"]) == (False, 7)
    assert files.source(first.id).read_bytes() == PDF
    assert not files.result(first.id).exists()
    name, meta = events(conn, first.id)[-1]
    assert (name, meta["reason"]) == ("queued", "resubmitted")


def test_a_complete_job_is_joined_while_its_result_is_there(submit: Submit, conn: Conn, files: Files) -> None:
    first = submit()
    assert first.id
    complete(conn, first.id, files.result(first.id))
    assert submit() == Submission(first.id, SubmissionResult.JOINED)
    files.result(first.id).unlink()
    assert submit() == Submission(first.id, SubmissionResult.REQUEUED)


def test_a_result_that_retention_has_dropped_is_made_again(submit: Submit, conn: Conn, files: Files) -> None:
    first = submit()
    assert first.id
    complete(conn, first.id, files.result(first.id))
    conn.execute("UPDATE jobs SET result_path = NULL WHERE id = %s", [first.id])
    assert submit().how is SubmissionResult.REQUEUED


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"hello", Code.NOT_PDF), (b"x" * 1020 + b"%PDF-1.4", Code.NOT_PDF), (b"%PDF-" + b"x" * 4996, Code.TOO_LARGE)],
)
def test_a_refused_file_is_recorded_once_and_not_stored(
    submit: Submit, conn: Conn, dirs: Dirs, content: bytes, code: Code
) -> None:
    first, second = submit(content), submit(content)
    assert first.how is second.how is SubmissionResult.REFUSED
    assert first.id == second.id
    row = job(conn, first.id)
    assert (row["status"], row["error_code"], row["upload_path"], row["dead_letter"]) == ("failed", code, None, False)
    assert row["sha256"] == hashlib.sha256(content).hexdigest()
    assert [name for name, _ in events(conn, first.id)] == ["created", "failed"]
    assert not list(dirs.uploads.iterdir())


@pytest.mark.parametrize("content", [b"x" * 1019 + b"%PDF-", b"%PDF-" + b"x" * 4995])
def test_the_limits_themselves_are_accepted(submit: Submit, content: bytes) -> None:
    assert submit(content).how is SubmissionResult.CREATED


def test_a_file_refused_before_is_accepted_once_the_limit_allows_it(
    submit: Submit, database: Database, files: Files, environment: Environment, tmp_path: Path
) -> None:
    large = b"%PDF-" + b"x" * 6000
    refused = submit(large)
    generous = Submitter(database, files, read_config(environment()))
    assert generous.submit_file(tmp_path / "a.pdf", OPTIONS) == Submission(refused.id, SubmissionResult.REQUEUED)


def test_an_empty_file_is_refused_and_not_recorded(submit: Submit, conn: Conn) -> None:
    done = submit(b"")
    assert (done.id, done.how, done.code) == (None, SubmissionResult.REFUSED, Code.NOT_PDF)
    assert count(conn) == 0


def test_a_link_to_a_file_of_the_submitter_is_followed(submit: Submit, submitter: Submitter, tmp_path: Path) -> None:
    first = submit()
    (tmp_path / "link.pdf").symlink_to(tmp_path / "a.pdf")
    assert submitter.submit_file(tmp_path / "link.pdf", OPTIONS).id == first.id


def test_a_pipe_is_refused_without_waiting_for_a_writer(submitter: Submitter, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pdf")
    with pytest.raises(OSError, match="not a regular file"):
        submitter.submit_file(tmp_path / "pipe.pdf", OPTIONS)


class Rest:
    """A stream of which the beginning was read already."""

    def __init__(self, beginning: bytes, rest: UnchangedFile) -> None:
        self.beginning, self.rest = beginning, rest

    def read(self, size: int, /) -> bytes:
        data, self.beginning = self.beginning, b""
        return data or self.rest.read(size)


class Growing:
    """A stream that goes on beyond what it announced."""

    def __init__(self, total: int) -> None:
        self.left = total

    def read(self, size: int, /) -> bytes:
        size = min(size, self.left, 700)  # less than asked for, as a socket may
        self.left -= size
        return b"%PDF-".ljust(size, b"x")[:size]


def test_a_stream_that_grows_over_the_limit_is_caught(submitter: Submitter, conn: Conn, dirs: Dirs) -> None:
    done = submitter.submit(Growing(100_000), "a.pdf", OPTIONS)
    assert done.code is Code.TOO_LARGE
    assert job(conn, done.id)["bytes"] == 100_000
    assert not list(dirs.uploads.iterdir())


def test_a_file_that_changes_while_it_is_read_is_not_taken(
    submitter: Submitter, tmp_path: Path, conn: Conn, dirs: Dirs
) -> None:
    path = tmp_path / "moving.pdf"
    path.write_bytes(PDF)
    with open_submitted(path) as source:
        beginning = source.read(5)
        with open(path, "r+b") as writer:
            writer.write(PDF.swapcase())
        os.utime(path, ns=(1, 1))
        with pytest.raises(OSError, match="changed while it was read"):
            submitter.submit(Rest(beginning, source), "a.pdf", OPTIONS)
    assert count(conn) == 0
    assert not list(dirs.uploads.iterdir())


def test_a_link_planted_at_the_temp_name_is_not_written_through(
    database: Database, files: Files, config: Config, tmp_path: Path, conn: Conn
) -> None:
    job_id, victim = uuid4(), tmp_path / "victim"
    victim.write_text("mine")
    files.temporary_source(job_id).symlink_to(victim)
    (tmp_path / "a.pdf").write_bytes(PDF)
    with pytest.raises(FileExistsError):
        Submitter(database, files, config, lambda: job_id).submit_file(tmp_path / "a.pdf", OPTIONS)
    assert victim.read_text() == "mine"
    assert count(conn) == 0


def test_a_link_planted_at_the_final_name_is_replaced_and_not_followed(
    database: Database, files: Files, config: Config, tmp_path: Path
) -> None:
    job_id, victim = uuid4(), tmp_path / "victim"
    victim.write_text("mine")
    files.source(job_id).symlink_to(victim)
    (tmp_path / "a.pdf").write_bytes(PDF)
    Submitter(database, files, config, lambda: job_id).submit_file(tmp_path / "a.pdf", OPTIONS)
    assert victim.read_text() == "mine"
    assert not files.source(job_id).is_symlink()


def test_a_failure_while_recording_leaves_neither_row_nor_file(submit: Submit, conn: Conn, dirs: Dirs) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        submit(options=SubmissionOptions("me", OPTIONS.mapping, after=[uuid4()]))
    assert count(conn) == 0
    assert not list(dirs.uploads.iterdir())


def test_a_job_after_another_waits_until_it_is_complete(submit: Submit, conn: Conn, files: Files) -> None:
    first = submit()
    assert first.id
    second = submit(b"%PDF-second", options=SubmissionOptions("me", OPTIONS.mapping, after=[first.id]))
    assert job(conn, second.id)["status"] == "uploaded"
    complete(conn, first.id, files.result(first.id))
    assert job(conn, second.id)["status"] == "queued"
    third = submit(b"%PDF-third", options=SubmissionOptions("me", OPTIONS.mapping, after=[first.id]))
    assert job(conn, third.id)["status"] == "queued"


def test_ten_identical_submissions_at_once_give_one_job(
    config: Config, files: Files, tmp_path: Path, conn: Conn, dirs: Dirs
) -> None:
    path, start = tmp_path / "a.pdf", Barrier(10)
    path.write_bytes(PDF)

    def submit_one(_: int) -> Submission:
        database = Database.open(config.database, "convertq:tests")
        try:
            start.wait(WAIT_SECONDS)
            return Submitter(database, files, config).submit_file(path, OPTIONS)
        finally:
            database.close()

    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(submit_one, range(10)))
    assert len({each.id for each in done}) == count(conn) == 1
    assert sorted(each.how for each in done) == [SubmissionResult.CREATED, *[SubmissionResult.JOINED] * 9]
    assert [path.name for path in dirs.uploads.iterdir()] == [f"{done[0].id}.pdf"]


def test_ten_resubmissions_at_once_queue_a_failed_job_once(
    config: Config, files: Files, submit: Submit, tmp_path: Path, conn: Conn
) -> None:
    first, start = submit(), Barrier(10)
    fail(conn, first.id)

    def submit_one(_: int) -> Submission:
        database = Database.open(config.database, "convertq:tests")
        try:
            start.wait(WAIT_SECONDS)
            return Submitter(database, files, config).submit_file(tmp_path / "a.pdf", OPTIONS)
        finally:
            database.close()

    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(submit_one, range(10)))
    assert [each.how for each in done].count(SubmissionResult.REQUEUED) == 1
    assert len([name for name, meta in events(conn, first.id) if meta.get("reason") == "resubmitted"]) == 1


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/x.pdf", "x.pdf"),
        ("a\nb'\"c.pdf", "a\nb'\"c.pdf"),
        ("caf\udce9.pdf", "caf\ufffd.pdf"),
        ("a\0b", "ab"),
        ("é" * 300, "é" * 255),
    ],
)
def test_a_name_is_kept_as_text_that_the_database_takes(
    name: str, kept: str, conn: Conn, submitter: Submitter, tmp_path: Path
) -> None:
    assert recorded_name(name) == kept
    (tmp_path / "plain.pdf").write_bytes(PDF)
    with open(tmp_path / "plain.pdf", "rb") as source:
        done = submitter.submit(source, name, OPTIONS)
    assert job(conn, done.id)["original_filename"] == kept
