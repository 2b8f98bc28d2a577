"""`convertq cancel`, and what the other commands do with a cancelled job."""

from __future__ import annotations

import getpass
import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.conftest import Connect, Dirs, Environment
from tests.jobs import Conn, claim, claimed, complete, insert_job, last_event, one, queued_job, row_of, run, status_of
from tests.processes import CONSOLE_SCRIPT, read_terminal
from tests.processes import run as run_convertq
from tests.waiting import WAIT_SECONDS, eventually, wait_for_row

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(environment: Environment) -> Cli:
    def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_convertq(*map(str, arguments), environment=environment())

    return cli


def test_each_id_gets_its_line_and_the_highest_code_wins(cli: Cli, conn: Conn) -> None:
    queued, running, done, unknown = insert_job(conn), claimed(conn).id, insert_job(conn, "complete"), uuid4()
    first = cli("cancel", queued, running, queued)
    assert (first.returncode, first.stdout) == (0, f"{queued} cancelled\n{running} cancelled\n")
    again = cli("cancel", queued, done, unknown)
    assert (again.returncode, again.stdout) == (4, f"{queued} was cancelled before\n")
    assert again.stderr.splitlines() == [
        f"{done}: it is complete; only unfinished jobs are cancelled", f"{unknown}: no such job",
    ]  # fmt: skip
    assert cli("cancel", unknown).returncode == 3
    assert last_event(conn, queued)["meta"]["by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    lines = [json.loads(line) for line in cli("cancel", "--json", queued, done).stdout.splitlines()]
    assert [(line["cancelled"], line["cascade"]) for line in lines] == [(True, 0), (False, 0)]


def test_neither_ids_nor_a_filter_is_wrong_usage_and_so_are_both(cli: Cli, conn: Conn) -> None:
    job = insert_job(conn)
    wrong = [(), ("--cascade",), ("--dry-run",), (job, "--owner", "o"), ("--status", "complete"), ("--status", "x")]
    assert [cli("cancel", *arguments).returncode for arguments in wrong] == [2] * len(wrong)
    assert status_of(conn, job) == "queued"


def test_in_bulk_a_preview_changes_nothing_and_the_cancel_counts(cli: Cli, conn: Conn) -> None:
    mine = [insert_job(conn, owner_session_id="me", original_filename=f"{number}.pdf") for number in range(12)]
    other, waiting = insert_job(conn, owner_session_id="you"), insert_job(conn, "uploaded", owner_session_id="you")
    run(conn, "add_dependency", id=waiting, depends_on=mine[0])
    seen = cli("cancel", "--owner", "me", "--dry-run")
    lines = seen.stdout.splitlines()
    assert (seen.returncode, lines[0], lines[-1]) == (0, "12 jobs would be cancelled", "and 2 more")
    assert [line.split()[0] for line in lines[2:-1]] == [str(job) for job in mine[:10]]
    document = json.loads(cli("cancel", "--owner", "me", "--cascade", "--dry-run", "--json").stdout)
    assert (document["dry_run"], document["matching"], len(document["sample"])) == (True, 13, 10)
    assert {status_of(conn, job) for job in mine} == {"queued"}
    assert cli("cancel", "--owner", "me", "--mapping", "none").stdout == "0 cancelled, 0 skipped\n"
    assert cli("cancel", "--owner", "me", "--status", "queued").stdout == "12 cancelled, 0 skipped\n"
    assert [status_of(conn, job) for job in (*mine, other, waiting)] == ["cancelled"] * 12 + ["queued", "uploaded"]
    assert json.loads(cli("cancel", "--owner", "me", "--json").stdout) == {"cancelled": 0, "skipped": 0}


def test_a_preview_of_ids_names_those_that_cannot_be_cancelled(cli: Cli, conn: Conn) -> None:
    job, done = insert_job(conn), insert_job(conn, "complete")
    seen = cli("cancel", "--dry-run", job, done)
    assert (seen.returncode, seen.stdout.splitlines()[0]) == (4, "1 job would be cancelled")
    assert seen.stderr == f"{done}: it is complete; only unfinished jobs are cancelled\n"
    assert status_of(conn, job) == "queued"


def test_show_tells_of_the_cancel_and_dependants_of_what_they_wait_for(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    needed, dependant = queued_job(conn, dirs), queued_job(conn, dirs, status="uploaded")
    run(conn, "add_dependency", id=dependant, depends_on=needed)
    cli("cancel", needed)
    shown = " ".join(cli("show", needed).stdout.split())
    assert f"cancelled at {row_of(conn, needed)['cancelled_at'].astimezone():%H:%M:%S} by " in shown
    assert f"`convertq retry {needed}` queues it again" in shown
    waits = " ".join(cli("show", dependant).stdout.split())
    assert f"waits for job {needed} (cancelled) to complete; `convertq retry {needed}` is needed first" in waits
    assert cli("cancel", "--cascade", needed).stdout == (
        f"{needed} was cancelled before, with 1 job that waited for it\n"
    )
    again = cli("retry", dependant)
    assert (again.returncode, status_of(conn, dependant)) == (0, "uploaded")
    waiting = f"it waits for job {needed} (cancelled), which must be complete first"
    assert (again.stdout, again.stderr) == (f"{dependant} is started over; {waiting}\n", "")
    assert cli("retry", needed).stdout == f"{needed} queued\n"
    assert complete(conn, claim(conn))
    assert status_of(conn, dependant) == "queued"


def test_a_cancelled_job_is_terminal_for_every_command(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    job = queued_job(conn, dirs)
    cli("cancel", job)
    waited = cli("wait", job)
    assert (waited.returncode, waited.stdout) == (1, f"{job} cancelled\n")
    assert cli("result", job).returncode == 4
    assert json.loads(cli("list", "--status", "cancelled", "--json").stdout)["cancelled_at"] is not None
    stats = json.loads(cli("stats", "--json").stdout)
    assert (stats["jobs"]["cancelled"], stats["totals"]["cancelled"], stats["success_rate"]) == (1, 1, None)
    assert "convertq_jobs_cancelled_total 1.0" in cli("metrics").stdout
    assert json.loads(cli("top", "--once", "--json").stdout)["jobs"]["cancelled"] == 1
    assert "1 cancelled" in cli("top", "--once").stdout


def test_the_same_file_again_starts_a_cancelled_job_over(cli: Cli, conn: Conn, tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(b"%PDF-1.7 again")
    job = UUID(cli("submit", file).stdout.strip())
    cli("cancel", job)
    assert UUID(cli("submit", file).stdout.strip()) == job
    assert (status_of(conn, job), row_of(conn, job)["run"]) == ("queued", 2)


def test_a_resubmission_of_a_cancelled_job_waits_again_for_what_it_depends_on(
    cli: Cli, conn: Conn, tmp_path: Path
) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(b"%PDF-1.7 waits")
    needed = insert_job(conn)
    job = UUID(cli("submit", "--after", needed, file).stdout.strip())
    cli("cancel", job)
    again = cli("submit", file)
    assert (again.returncode, UUID(again.stdout.strip())) == (0, job)
    assert (status_of(conn, job), row_of(conn, job)["run"]) == ("uploaded", 2)
    assert complete(conn, claim(conn))
    assert status_of(conn, job) == "queued"


def test_who_waits_for_a_submission_that_is_cancelled_gets_exit_1(
    cli: Cli, conn: Conn, environment: Environment, tmp_path: Path
) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(b"%PDF-1.7 cancelled")
    waiting = subprocess.Popen(
        [CONSOLE_SCRIPT, "submit", "--wait", str(file)], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    row = wait_for_row(conn, "SELECT id FROM jobs", [])
    cli("cancel", row["id"])
    _, errors = waiting.communicate(timeout=WAIT_SECONDS)
    assert (waiting.returncode, errors) == (1, f"{row['id']}: cancelled\n")


# -- retry in bulk --


def test_a_retry_in_bulk_has_a_preview_and_finds_cancelled_jobs(cli: Cli, conn: Conn, dirs: Dirs) -> None:
    jobs = [queued_job(conn, dirs, owner_session_id="me") for _ in range(3)]
    cli("cancel", "--owner", "me")
    assert cli("retry", "--owner", "me").stdout == "0 queued\n"
    seen = cli("retry", "--cancelled", "--owner", "me", "--dry-run")
    assert seen.stdout.splitlines()[0] == "3 jobs would be queued again, if their source is there"
    (dirs.uploads / f"{jobs[0]}.pdf").unlink()
    named = cli("retry", "--dry-run", "--json", *jobs)
    assert (named.returncode, json.loads(named.stdout)["matching"]) == (4, 2)
    assert {status_of(conn, job) for job in jobs} == {"cancelled"}
    assert json.loads(cli("retry", "--cancelled", "--json").stdout) == {"queued": 2, "skipped": 1}
    assert cli("retry", "--cancelled", "--failed").returncode == 2


def test_an_interrupted_cancel_in_bulk_keeps_what_is_done_and_says_so(
    conn: Conn, connect: Connect, environment: Environment
) -> None:
    """The second batch waits for a row that another session has locked; Ctrl-C arrives meanwhile, on a terminal."""
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, created_at, owner_session_id) SELECT n, lpad(n::text, 64, '0'),"
        " 'queued', now() + n * interval '1 us', 'me' FROM generate_series(1, 501) AS n"
    )
    locker = connect()
    locker.execute("BEGIN")
    locker.execute("SELECT FROM jobs WHERE bytes = 501 FOR UPDATE")
    leader, follower = pty.openpty()
    command = [CONSOLE_SCRIPT, "cancel", "--owner", "me"]
    process = subprocess.Popen(
        command, env=environment(TERM="xterm"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower
    )
    blocked = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    eventually(lambda: conn.execute(blocked).rowcount, what="the second batch")
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_SECONDS) == 130
    os.close(follower)
    shown = read_terminal(leader)
    os.close(leader)
    assert "500 cancelled" in shown
    assert re.search(r"interrupted: 500 cancelled; the same command\s+continues with the rest", shown)
    locker.execute("ROLLBACK")
    assert one(conn, "SELECT count(*) FROM jobs WHERE status = 'cancelled'")["count"] == 500
