"""`convertq submit` as it is typed: ids on stdout, refusals on stderr, and the exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.conftest import Dirs, Environment, Supervisor
from tests.processes import CONSOLE_SCRIPT, read_terminal, run
from tests.waiting import WAIT_SECONDS, Row

PDF = b"%PDF-1.4\nhello\n"
Conn = psycopg.Connection[Row]


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    path = tmp_path / "invoice.pdf"
    path.write_bytes(PDF)
    return path


def jobs(conn: Conn) -> list[Row]:
    return conn.execute("SELECT * FROM jobs ORDER BY created_at").fetchall()


def test_it_prints_one_id_a_line_and_nothing_else(environment: Environment, pdf: Path, conn: Conn) -> None:
    other = pdf.with_name("other.pdf")
    other.write_bytes(PDF + b"other")
    done = run("submit", str(pdf), str(other), environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert [UUID(line) for line in done.stdout.splitlines()] == [row["id"] for row in jobs(conn)]
    assert {row["owner_session_id"] for row in jobs(conn)} == {"cli"}


def test_options_reach_the_row(environment: Environment, pdf: Path, conn: Conn) -> None:
    options = ["--owner", "me", "--priority", "-5", "--no-pretty", "--mapping", "text_v1"]
    run("submit", str(pdf), *options, environment=environment(MAPPINGS_ALLOWED="a,text_v1"))
    [row] = jobs(conn)
    assert (row["owner_session_id"], row["priority"], row["pretty"], row["mapping"]) == ("me", -5, False, "text_v1")


def test_every_file_is_tried_and_each_refusal_has_its_line(
    environment: Environment, pdf: Path, tmp_path: Path, conn: Conn
) -> None:
    (tmp_path / "text.pdf").write_text("hello")
    (tmp_path / "empty.pdf").touch()
    (tmp_path / "large.pdf").write_bytes(PDF + b"x" * 100)
    os.mkfifo(tmp_path / "pipe.pdf")
    names = ["text.pdf", "empty.pdf", "large.pdf", "pipe.pdf", ".", "missing.pdf", pdf.name]
    done = run("submit", *(str(tmp_path / name) for name in names), environment=environment(MAX_UPLOAD_BYTES=50))
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 1
    said = done.stderr.splitlines()
    wanted = ["NOT_PDF: not", "NOT_PDF: the file is empty", "TOO_LARGE", "not a regular", "is a dir", "no such file"]
    assert [words in line for words, line in zip(wanted, said, strict=True)] == [True] * 6
    assert {row["error_code"] for row in jobs(conn)} == {None, "NOT_PDF", "TOO_LARGE"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_one_line(environment: Environment, pdf: Path) -> None:
    pdf.chmod(0)
    done = run("submit", str(pdf), environment=environment())
    assert (done.returncode, done.stderr) == (1, f"{pdf}: IO_ERROR: permission denied\n")


@pytest.mark.parametrize(
    "name", ["new\nline.pdf", "quo'te\".pdf", "-dash.pdf", "..pdf", "ü" * 120 + ".pdf", "\x1b[31mred.pdf"]
)
def test_a_strange_name_is_data(environment: Environment, tmp_path: Path, name: str, dirs: Dirs, conn: Conn) -> None:
    (tmp_path / name).write_bytes(PDF)
    done = run("submit", "--", str(tmp_path / name), environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    [row] = jobs(conn)
    assert row["original_filename"] == name
    assert [path.name for path in dirs.uploads.iterdir()] == [f"{row['id']}.pdf"]
    listed = run("list", environment=environment()).stdout
    assert len(listed.splitlines()) == 2
    assert "\x1b" not in listed


def test_a_strange_name_cannot_forge_a_line_of_stderr(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "x\nconvertq: all is well.pdf").write_text("hello")
    done = run("submit", str(tmp_path / "x\nconvertq: all is well.pdf"), environment=environment())
    assert len(done.stderr.splitlines()) == 1


def test_bytes_that_are_no_utf8_in_a_name_are_replaced(environment: Environment, tmp_path: Path, conn: Conn) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.pdf"
    with open(path, "wb") as file:
        file.write(PDF)
    done = subprocess.run([CONSOLE_SCRIPT, "submit", path], env=environment(), capture_output=True, check=False)
    assert done.returncode == 0
    assert jobs(conn)[0]["original_filename"] == "caf\ufffd.pdf"


def test_a_mapping_that_is_not_allowed_is_wrong_usage(environment: Environment, pdf: Path, conn: Conn) -> None:
    done = run("submit", str(pdf), "--mapping", "nope", environment=environment(MAPPINGS_ALLOWED="a1,b2"))
    assert done.returncode == 2
    assert "a1, b2" in done.stderr
    assert not jobs(conn)


@pytest.mark.parametrize("options", [["--priority", "2147483648"], ["--priority", "x"], ["--after", "x"], ["--nope"]])
def test_wrong_usage_is_exit_2_and_one_line(environment: Environment, pdf: Path, options: list[str]) -> None:
    done = run("submit", str(pdf), *options, environment=environment())
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_after_an_unknown_job_nothing_is_submitted(environment: Environment, pdf: Path, conn: Conn, dirs: Dirs) -> None:
    done = run("submit", str(pdf), "--after", str(uuid4()), environment=environment())
    assert (done.returncode, done.stdout) == (3, "")
    assert not jobs(conn)
    assert not list(dirs.uploads.iterdir())


def test_after_a_job_it_waits_and_show_says_for_what(environment: Environment, pdf: Path, conn: Conn) -> None:
    first = run("submit", str(pdf), environment=environment()).stdout.strip()
    second = run("submit", str(pdf), "--owner", "x", "--after", first, environment=environment()).stdout.strip()
    assert f"waits for job {first} (queued)" in run("show", second, environment=environment()).stdout


def test_json_has_one_object_for_each_file(environment: Environment, pdf: Path, tmp_path: Path) -> None:
    (tmp_path / "text.pdf").write_text("hello")
    done = run("submit", "--json", str(pdf), str(tmp_path / "text.pdf"), environment=environment())
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["outcome"], first["code"]) == ("created", None)
    assert (second["outcome"], second["code"]) == ("refused", "NOT_PDF")


def test_wait_ends_with_the_jobs(environment: Environment, pdf: Path, supervisor: Supervisor) -> None:
    supervisor()
    done = run("submit", "--wait", "--json", str(pdf), environment=environment())
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "complete"


def test_wait_shows_a_bar_on_a_terminal_and_keeps_stdout_for_the_ids(
    environment: Environment, pdf: Path, supervisor: Supervisor
) -> None:
    supervisor()
    screen, side = pty.openpty()
    done = subprocess.run(
        [CONSOLE_SCRIPT, "submit", "--wait", str(pdf)],
        env=environment(TERM="xterm"), stdout=subprocess.PIPE, stderr=side, timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    os.close(side)
    drawn = read_terminal(screen)
    os.close(screen)
    assert done.returncode == 0
    assert UUID(done.stdout.decode().strip())
    assert "100%  1 of 1" in drawn
    assert "\x1b" not in drawn  # nothing that a terminal must know


def test_a_directory_that_cannot_be_made_is_bad_configuration(environment: Environment, pdf: Path) -> None:
    done = run("submit", str(pdf), environment=environment(UPLOADS_DIR=f"{pdf}/uploads"))
    assert done.returncode == 78
    assert done.stderr.startswith("convertq: UPLOADS_DIR = ")


def test_ten_processes_with_the_same_file_make_one_job(environment: Environment, pdf: Path, conn: Conn) -> None:
    started = [
        subprocess.Popen([CONSOLE_SCRIPT, "submit", str(pdf)], env=environment(), stdout=subprocess.PIPE)
        for _ in range(10)
    ]
    ids = {process.communicate(timeout=60)[0] for process in started}
    assert {process.returncode for process in started} == {0}
    assert len(ids) == len(jobs(conn)) == 1
