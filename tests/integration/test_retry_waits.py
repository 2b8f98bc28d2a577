"""Nothing is started over before what it waits for is complete, for every caller."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.conftest import Connect, Dirs, Environment, Web
from tests.jobs import (
    PDF,
    Conn,
    begin,
    claim,
    complete,
    fail,
    insert_job,
    queued_job,
    run,
    set_status,
    status_of,
)
from tests.processes import run as run_convertq
from tests.waiting import eventually
from tests.web_client import PDF as WEB_PDF
from tests.web_client import error_of

ENDED = pytest.mark.parametrize("status", ["failed", "complete"])


def waits(conn: Conn, job_id: UUID, needed: UUID) -> None:
    """Written while the needed job was complete; then that one was started over, and failed."""
    conn.execute("INSERT INTO job_dependencies VALUES (%s, %s)", [job_id, needed])


def failed_job_that_waits(conn: Conn, dirs: Dirs) -> tuple[UUID, UUID]:
    """The job, and the failed one that it waits for."""
    needed = queued_job(conn, dirs)
    job_id = queued_job(conn, dirs, status="uploaded")
    waits(conn, job_id, needed)
    fail(conn, claim(conn))
    conn.execute("UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN' WHERE id = %s", [job_id])
    return job_id, needed


# -- the table refuses --


@ENDED
def test_no_program_starts_a_job_over_before_what_it_waits_for(conn: Conn, status: str) -> None:
    needed, job_id = insert_job(conn, "complete"), insert_job(conn, status)
    waits(conn, job_id, needed)
    set_status(conn, needed, "queued")
    with pytest.raises(psycopg.errors.CheckViolation, match="waits for another job") as refused:
        set_status(conn, job_id, "queued")
    assert refused.value.diag.constraint_name == "job_waits_for_its_dependencies"
    assert complete(conn, claim(conn))
    set_status(conn, job_id, "queued")
    assert status_of(conn, job_id) == "queued"


def test_a_retry_by_statement_leaves_out_those_that_wait(conn: Conn, dirs: Dirs) -> None:
    job_id, needed = failed_job_that_waits(conn, dirs)
    other = insert_job(conn, "failed")
    assert {row["id"] for row in run(conn, "retry_jobs", ids=[job_id, needed, other])} == {needed, other}


# -- commands --


def test_the_command_says_what_a_job_waits_for(environment: Environment, conn: Conn, dirs: Dirs) -> None:
    job_id, needed = failed_job_that_waits(conn, dirs)
    done = run_convertq("retry", str(job_id), environment=environment())
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"{job_id}: it waits for job {needed} (failed), which must be complete first\n"
    shown = run_convertq("show", str(job_id), environment=environment()).stdout
    assert f"it waits for job {needed} (failed)" in " ".join(shown.split())
    bulk = run_convertq("retry", "--failed", "--json", environment=environment())
    assert json.loads(bulk.stdout) == {"queued": 1, "skipped": 1}
    complete(conn, claim(conn))
    assert run_convertq("retry", str(job_id), environment=environment()).returncode == 0


def test_a_retry_in_bulk_counts_those_that_wait(environment: Environment, conn: Conn, dirs: Dirs) -> None:
    failed_job_that_waits(conn, dirs)
    done = run_convertq("retry", "--failed", environment=environment())
    assert done.stdout == "1 queued, 1 skipped (source gone, or another job must be complete first)\n"


def test_the_same_file_again_says_so_too(environment: Environment, conn: Conn, dirs: Dirs, tmp_path: Path) -> None:
    source = tmp_path / "a.pdf"
    source.write_bytes(PDF)
    needed = queued_job(conn, dirs)

    def submit(*options: str) -> tuple[int, str, str]:
        done = run_convertq("submit", *options, str(source), environment=environment())
        return done.returncode, done.stdout.strip(), done.stderr

    _, job_id, _ = submit("--after", str(needed))
    fail(conn, claim(conn))
    conn.execute("UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN' WHERE id = %s", [job_id])
    reason = f"it waits for job {needed} (failed), which must be complete first"
    assert submit() == (4, "", f"{source}: NOT_READY: {reason} (job {job_id})\n")
    assert status_of(conn, UUID(job_id)) == "failed"
    assert run(conn, "retry_jobs", ids=[needed])
    complete(conn, claim(conn))
    assert submit() == (0, job_id, "")
    assert status_of(conn, UUID(job_id)) == "queued"


# -- the web --


def test_a_visitor_is_told_and_offered_no_retry(web: Web, conn: Conn, dirs: Dirs) -> None:
    visitor = web().visitor()
    job_id = visitor.submitted()
    conn.execute("UPDATE jobs SET status = 'failed', error_code = 'UNKNOWN' WHERE id = %s", [job_id])
    needed = insert_job(conn, "complete")
    waits(conn, job_id, needed)
    set_status(conn, needed, "queued")
    refused = visitor.post(f"/api/jobs/{job_id}/retry")
    assert error_of(refused) == (409, "NOT_READY")
    assert "must be complete first" in refused.json()["error"]["message"]
    assert str(needed) not in refused.text  # another's, perhaps
    again = visitor.submit(WEB_PDF)
    assert error_of(again) == (409, "NOT_READY")
    assert again.json()["error"]["message"] == refused.json()["error"]["message"]
    assert visitor.get(f"/api/jobs/{job_id}").json()["can_retry"] is False
    assert [job["can_retry"] for job in visitor.get("/api/jobs").json()["jobs"]] == [False]
    complete(conn, claim(conn))
    assert visitor.get(f"/api/jobs/{job_id}").json()["can_retry"] is True
    assert visitor.post(f"/api/jobs/{job_id}/retry").status_code == 202


# -- two at once --


def test_a_dependency_that_is_started_over_meanwhile_only_skips_the_retry(
    environment: Environment, conn: Conn, connect: Connect, dirs: Dirs
) -> None:
    """The retry waits for the row; when it has it, what it needs is not complete any more."""
    needed = queued_job(conn, dirs)
    job_id = queued_job(conn, dirs, status="uploaded")
    waits(conn, job_id, needed)
    complete(conn, claim(conn))
    fail(conn, claim(conn))
    with conn.transaction():
        conn.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [job_id])
        command = begin(lambda: run_convertq("retry", str(job_id), environment=environment()))
        observer = connect()
        waiting = "SELECT FROM pg_stat_activity WHERE application_name = 'convertq:cli' AND wait_event_type = 'Lock'"
        eventually(lambda: observer.execute(waiting).fetchall(), what="the retry waits for the row")
        set_status(observer, needed, "queued")
    done = command.result(20)
    assert (done.returncode, done.stderr.partition(" it ")[2]) == (
        4,
        f"waits for job {needed} (queued), which must be complete first\n",
    )
