"""The commands that look at jobs and move them: what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from convertq import sql
from convertq.queue.jobs import NEWEST

from tests.conftest import Dirs, Environment, Supervisor
from tests.files import Files
from tests.jobs import insert_job, queued_job, set_status
from tests.processes import CONSOLE_SCRIPT, Process, run
from tests.waiting import Row, wait_for_row

Conn = psycopg.Connection[Row]
Ran = subprocess.CompletedProcess[str]
Cli = Callable[..., Ran]


@pytest.fixture
def cli(environment: Environment) -> Cli:
    return lambda *arguments: run(*map(str, arguments), environment=environment())


def failed_job(conn: Conn, dirs: Dirs, *, code: str = "GW_5XX", dead: bool = False, owner: str | None = None) -> UUID:
    job_id = queued_job(conn, dirs, owner_session_id=owner)
    conn.execute(
        "UPDATE jobs SET status = 'failed', error_code = %s, dead_letter = %s, attempt_count = 3 WHERE id = %s",
        [code, dead, job_id],
    )
    return job_id


def complete_job(conn: Conn, dirs: Dirs, xml: bytes = b"<x/>") -> UUID:
    job_id = queued_job(conn, dirs)
    result = Files(dirs.uploads, dirs.results).result(job_id)
    result.write_bytes(xml)
    for status in ("processing", "complete"):
        set_status(conn, job_id, status)
    conn.execute("UPDATE jobs SET result_path = %s WHERE id = %s", [str(result), job_id])
    return job_id


def row(conn: Conn, job_id: UUID) -> Row:
    return wait_for_row(conn, "SELECT * FROM jobs WHERE id = %s", [job_id])


# -- list and show --


def test_list_shows_the_newest_first(cli: Cli, conn: Conn) -> None:
    ids = [insert_job(conn, original_filename=f"{number}.pdf") for number in range(3)]
    lines = cli("list").stdout.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "AGE", "TRIES", "PRIO", "SIZE", "OWNER", "FILE", "ERROR"]
    assert [line.split()[0] for line in lines[1:]] == [str(job_id) for job_id in reversed(ids)]


def test_list_filters_and_limits(cli: Cli, conn: Conn) -> None:
    queued = insert_job(conn, owner_session_id="me")
    failed = insert_job(conn, "failed", owner_session_id="me", error_code="GW_4XX")
    other = insert_job(conn, "failed", owner_session_id="you", error_code="GW_5XX")

    def found(*options: str) -> list[UUID]:
        return [UUID(json.loads(line)["id"]) for line in cli("list", "--json", *options).stdout.splitlines()]

    assert found() == [other, failed, queued]
    assert found("--limit", "1") == [other]
    assert found("--status", "failed") == [other, failed]
    assert found("--owner", "me") == [failed, queued]
    assert found("--owner", "me", "--status", "queued") == [queued]
    assert found("--code", "GW_4XX") == [failed]
    assert found("--code", "GW_4XX", "--owner", "you") == []


def test_list_reads_only_the_newest_of_a_large_table(conn: Conn) -> None:
    conn.execute(
        "INSERT INTO jobs (owner_session_id, bytes, sha256, status, completed_at, created_at) SELECT 'o' || n %% 9, 1,"
        " lpad(n::text, 64, '0'), 'complete', now(), now() - n * interval '1 s' FROM generate_series(1, 20000) AS n",
        [],
    )
    conn.execute("ANALYZE jobs")
    explain = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
    wanted: dict[str, Any] = {"statuses": ["queued", "complete"], "error_code": None, "limit": 50, "owner": "o3"}
    wanted |= {"dead_only": False, "before_created_at": NEWEST[0], "before_id": NEWEST[1]}
    for name in ("list_jobs", "list_owner_jobs"):
        plan = conn.execute(explain + sql.query(name, "public"), wanted).fetchone()
        assert plan
        assert plan["QUERY PLAN"][0]["Plan"]["Shared Hit Blocks"] < 250


def test_show_tells_the_whole_story(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    job_id = failed_job(conn, dirs)
    shown = cli("show", job_id)
    assert shown.returncode == 0
    assert f"job {job_id}: failed" in shown.stdout
    assert f"convertq retry {job_id}" in shown.stdout
    assert [line.split()[-1] for line in shown.stdout.splitlines()[-3:-1]] == ["created", "queued"]
    document = json.loads(cli("show", job_id, "--json").stdout)
    assert [event["event_type"] for event in document["events"]] == ["created", "queued", "failed"]
    assert "explanation" in document


@pytest.mark.parametrize("command", ["show", "result", "wait", "retry", "cancel"])
def test_an_unknown_id_is_exit_3_and_a_malformed_one_exit_2(cli: Cli, command: str) -> None:
    unknown, malformed = cli(command, uuid4()), cli(command, "../etc/passwd")
    assert (unknown.returncode, malformed.returncode) == (3, 2)
    assert len(unknown.stderr.splitlines()) == len(malformed.stderr.splitlines()) == 1


# -- wait --


def test_wait_prints_each_job_and_the_highest_code_wins(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    done, failed = complete_job(conn, dirs), failed_job(conn, dirs)
    assert cli("wait", done, done).stdout == f"{done} complete\n"
    both = cli("wait", done, failed)
    assert (both.returncode, sorted(both.stdout.splitlines())) == (1, sorted([f"{done} complete", f"{failed} failed"]))
    assert cli("wait", failed, uuid4()).returncode == 3


def test_wait_ends_at_its_timeout(cli: Cli, conn: Conn) -> None:
    job_id = insert_job(conn)
    late = cli("wait", job_id, "--timeout", "0.1")
    assert (late.returncode, late.stdout) == (1, f"{job_id} queued\n")
    assert late.stderr.startswith(f"{job_id}: queued for ")
    assert "no worker is running" in late.stderr


def test_wait_sees_a_job_finish(conn: Conn, dirs: Dirs, environment: Environment, supervisor: Supervisor) -> None:
    job_id = queued_job(conn, dirs)
    waiting = Process("wait", str(job_id), environment=environment())
    supervisor()
    assert waiting.wait() == 0
    assert waiting.lines == [f"{job_id} complete"]


def test_ctrl_c_is_quiet(conn: Conn, environment: Environment) -> None:
    waiting = Process("wait", str(insert_job(conn)), environment=environment())
    wait_for_row(
        conn, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'convertq:cli' AND query ~ 'get_statuses'"
    )
    waiting.send(signal.SIGINT)
    assert (waiting.wait(), "".join(waiting.lines)) == (130, "")


# -- result --


def test_result_gives_the_bytes_and_counts_the_download(cli: Cli, conn: Conn, dirs: Dirs, tmp_path: Path) -> None:
    job_id = complete_job(conn, dirs, b"<x>\xc3\xa9</x>\n")
    assert cli("result", job_id).stdout == "<x>é</x>\n"
    target = tmp_path / "out.xml"
    target.write_text("old")
    assert cli("result", job_id, "-o", target).returncode == 0
    assert target.read_bytes() == b"<x>\xc3\xa9</x>\n"
    assert row(conn, job_id)["download_count"] == 2
    assert not list(tmp_path.glob(".*.part"))


def test_a_result_that_is_not_ready_or_gone_is_exit_4(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    waiting, gone, dropped = insert_job(conn), complete_job(conn, dirs), complete_job(conn, dirs)
    (dirs.results / f"{gone}.xml").unlink()
    conn.execute("UPDATE jobs SET result_path = NULL WHERE id = %s", [dropped])
    for job_id, code in ((waiting, "NOT_READY"), (gone, "EXPIRED"), (dropped, "EXPIRED")):
        done = cli("result", job_id)
        assert (done.returncode, done.stdout) == (4, "")
        assert f"convertq: {code}: " in done.stderr
    assert row(conn, gone)["download_count"] == 0


def test_a_link_in_the_result_directory_is_not_followed(cli: Cli, conn: Conn, dirs: Dirs, tmp_path: Path) -> None:
    job_id, secret = complete_job(conn, dirs), tmp_path / "secret"
    secret.write_text("secret")
    (dirs.results / f"{job_id}.xml").unlink()
    (dirs.results / f"{job_id}.xml").symlink_to(secret)
    done = cli("result", job_id)
    assert (done.returncode, done.stdout) == (4, "")
    assert "EXPIRED" in done.stderr, "as the web answers it"


def test_a_reader_that_goes_away_is_no_traceback(conn: Conn, dirs: Dirs, environment: Environment) -> None:
    job_id = complete_job(conn, dirs, b"<x>" + b"y" * 1_000_000 + b"</x>")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [CONSOLE_SCRIPT, "result", str(job_id)], env=environment(), stdout=writing, stderr=-1, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


# -- retry --


def test_retry_queues_a_failed_job_as_new(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    job_id = failed_job(conn, dirs, dead=True)
    done = cli("retry", job_id, job_id)
    assert (done.returncode, done.stdout) == (0, f"{job_id} queued\n")
    found = row(conn, job_id)
    assert (found["status"], found["attempt_count"], found["error_code"], found["dead_letter"]) == (
        "queued", 0, None, False,
    )  # fmt: skip
    event = wait_for_row(conn, "SELECT * FROM job_events WHERE job_id = %s ORDER BY id DESC LIMIT 1", [job_id])
    assert (event["event_type"], event["meta"]["reason"]) == ("retry", "manual")


def test_retry_says_why_not_and_tries_the_others(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    fine, gone, queued = failed_job(conn, dirs), failed_job(conn, dirs), insert_job(conn)
    refused = insert_job(conn, "failed", error_code="NOT_PDF")
    (dirs.uploads / f"{gone}.pdf").unlink()
    done = cli("retry", gone, queued, refused, uuid4(), fine)
    assert done.returncode == 4
    assert done.stdout == f"{fine} queued\n"
    reasons = ["source file is gone", "it is queued", "it was refused", "no such job"]
    assert [words in line for words, line in zip(reasons, done.stderr.splitlines(), strict=True)] == [True] * 4


def test_retry_in_bulk_counts_what_it_skips(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    mine, dead = failed_job(conn, dirs, owner="me"), failed_job(conn, dirs, code="GW_TIMEOUT", dead=True)
    gone = failed_job(conn, dirs)
    (dirs.uploads / f"{gone}.pdf").unlink()
    assert cli("retry", "--owner", "me").stdout == "1 queued\n"
    assert cli("retry", "--dead", "--code", "GW_TIMEOUT").stdout == "1 queued\n"
    assert json.loads(cli("retry", "--failed", "--json").stdout) == {"queued": 0, "skipped": 1}
    assert [row(conn, job_id)["status"] for job_id in (mine, dead, gone)] == ["queued", "queued", "failed"]


def test_retry_wants_ids_or_a_choice_and_not_both(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    job_id = failed_job(conn, dirs)
    assert [cli("retry").returncode, cli("retry", job_id, "--failed").returncode] == [2, 2]
    assert row(conn, job_id)["status"] == "failed"


# -- reclaim --


def test_reclaim_says_how_many_and_removes_their_temporary_files(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    def lost(attempt: int) -> UUID:
        return insert_job(conn, "processing", leased_by="gone/1", lease_expires_at="yesterday", attempt_count=attempt)

    ids = [lost(1) for _ in range(150)]
    lost(3)
    part = Files(dirs.uploads, dirs.results).temporary_result(ids[0], 1, "gone/1")
    part.touch()
    done = cli("reclaim")
    assert (done.returncode, done.stdout) == (0, "reclaimed 150 jobs\n1 job given up\n")
    assert not part.exists()
    assert json.loads(cli("reclaim", "--json").stdout) == {"reclaimed": 0, "given_up": 0}


# -- the database itself --


def test_an_unreachable_database_is_exit_69_without_its_password(environment: Environment) -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/jobs"
    done = run("list", environment=environment(DATABASE_URL=url))
    assert done.returncode == 69
    assert done.stderr.startswith("convertq: database unreachable at 127.0.0.1:1/jobs: ")
    assert len(done.stderr.splitlines()) == 1
    assert "s3cret" not in done.stderr


def test_bad_configuration_is_exit_78_with_every_problem(environment: Environment) -> None:
    done = run("list", environment=environment(DATABASE_URL=None, MAX_UPLOAD_BYTES="x"))
    assert done.returncode == 78
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["DATABASE_URL", "MAX_UPLOAD_BYTES"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DROP SCHEMA public CASCADE", "run `convertq migrate`"),
        ("DELETE FROM schema_migrations WHERE version > 1", "run `convertq migrate`"),
        ("INSERT INTO schema_migrations VALUES (9999, 'future', repeat('0', 64))", "upgrade convertq"),
    ],
)
def test_a_schema_that_does_not_fit_is_exit_1_with_the_remedy(
    cli: Cli, conn: Conn, change: str, words: str, tmp_path: Path
) -> None:
    conn.execute(change.encode())
    (tmp_path / "a.pdf").write_bytes(b"%PDF-")
    for arguments in (["list"], ["submit", tmp_path / "a.pdf"], ["reclaim"], ["show", uuid4()]):
        done = cli(*arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert words in done.stderr


# -- migrate --


def test_migrate_makes_the_schema_and_then_has_nothing_to_do(environment: Environment, database_url: str) -> None:
    env = environment(DATABASE_URL=f"{database_url}&schema=fresh")
    assert "pending" in run("migrate", "--status", environment=env).stdout
    assert run("migrate", "--to", "1", environment=env).stdout == "applied 0001 tables\n"
    assert run("migrate", environment=env).stdout.startswith("applied 0002 ")
    assert run("migrate", environment=env).stdout == "nothing to do: the schema fresh is up to date\n"
    states = [json.loads(line) for line in run("migrate", "--status", "--json", environment=env).stdout.splitlines()]
    assert {state["state"] for state in states} == {"applied"}
    assert run("list", environment=env).returncode == 0


def test_migrate_refuses_an_edited_or_a_newer_schema(cli: Cli, conn: Conn) -> None:
    conn.execute("INSERT INTO schema_migrations VALUES (9999, 'future', repeat('0', 64))")
    assert (cli("migrate").returncode, "unknown" in cli("migrate", "--status").stdout) == (1, True)
    conn.execute("DELETE FROM schema_migrations WHERE version = 9999")
    conn.execute("UPDATE schema_migrations SET checksum = repeat('0', 64) WHERE version = 1")
    done = cli("migrate")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "was edited" in done.stderr


def test_migrate_without_the_right_to_is_one_line(environment: Environment, database_url: str, conn: Conn) -> None:
    role = f"weak_{uuid4().hex[:8]}"
    conn.execute(f"CREATE ROLE {role} LOGIN".encode())
    try:
        weak = database_url.replace("postgresql://", "", 1).partition("@")[2]
        done = run("migrate", environment=environment(DATABASE_URL=f"postgresql://{role}@{weak}&schema=mine"))
    finally:
        conn.execute(f"DROP ROLE {role}".encode())
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "permission denied" in done.stderr


# -- worker run --


def test_worker_run_takes_its_concurrency_from_the_option(supervisor: Supervisor, environment: Environment) -> None:
    process = Process("worker", "run", "--concurrency", "3", environment=environment(WORKER_CONCURRENCY=1))
    try:
        assert process.wait_for_event("ready")["workers"] == 3
    finally:
        assert process.stop() == 0


def test_worker_run_without_its_directory_is_bad_configuration(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("worker", "run", environment=environment(RESULTS_DIR=f"{tmp_path}/file/results"))
    assert done.returncode == 78
    assert done.stderr.startswith("convertq: RESULTS_DIR = ")
