"""`convertq top`: one frame for scripts, a live screen on real terminals, and its statements."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from convertq import sql
from convertq.embedded.postgres import EmbeddedPostgres

from tests import jobs
from tests.conftest import Dirs, Environment
from tests.files import Files
from tests.jobs import Conn, claimed, fail, insert_job, queued_job, register_server, retry_later, row_of, status_of
from tests.processes import CONSOLE_SCRIPT, run
from tests.waiting import WAIT_SECONDS, eventually

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>][0-9A-B]?|\r")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:[349][0-7]|38|48)(?:;[0-9;]*)?m")
HOME, ALTERNATE, MAIN = "\x1b[H", "\x1b[?1049h", "\x1b[?1049l"
UTF8 = {"LANG": "C.UTF-8", "LC_ALL": None, "TERM": "xterm-256color"}


class Terminal:
    """`convertq top` on a terminal of its own. Each screen is drawn from the home position: so they are told apart."""

    def __init__(self, environment: Mapping[str, str], *arguments: str, width: int = 80, height: int = 24) -> None:
        self.master, self._slave = pty.openpty()
        self._open = [self._slave, self.master]
        self.resize(width, height)
        self.settings = termios.tcgetattr(self._slave)
        self.written = ""
        self.popen = subprocess.Popen(
            [CONSOLE_SCRIPT, "top", *arguments],
            env=dict(environment),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that its Ctrl-C and its size come as signals
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                self.written += data.decode(errors="replace")

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def lines(self) -> list[str]:
        """The last whole screen; empty before the first."""
        for drawn in reversed(self.written.split(HOME)[1:]):
            lines = ESCAPE.sub("", drawn).split("\n")
            if len(lines) == self.height and len(lines[-1]) >= self.width:
                return lines
        return []

    def wait_for(self, *words: str, timeout: float = WAIT_SECONDS) -> list[str]:
        def seen() -> list[str]:
            lines = self.lines()
            return lines if all(word in "\n".join(lines) for word in words) else []

        try:
            return eventually(seen, timeout, f"{words} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}; it ended:\n" + ESCAPE.sub("", self.written[-4000:])) from None

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        return self.popen.wait(timeout)

    def is_restored(self) -> bool:
        return termios.tcgetattr(self._slave) == self.settings and eventually(
            lambda: self.written.rfind(MAIN) > self.written.rfind(ALTERNATE), what="back on the main screen"
        )

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait(WAIT_SECONDS)
        self.hang_up()

    def hang_up(self) -> None:
        """The reader ends with the last that has the other side open, or when it reads in vain."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()
        self._reader.join(1)


Top = Callable[..., Terminal]


@pytest.fixture
def top(environment: Environment) -> Iterator[Top]:
    """`top(width=200, height=50, LANG="C")`: on a terminal that knows UTF-8 and colours unless told otherwise."""
    opened: list[Terminal] = []

    def top(*arguments: str, width: int = 80, height: int = 24, **overrides: object) -> Terminal:
        variables = environment(**{**UTF8, **overrides})
        opened.append(Terminal(variables, *(arguments or ("--interval", "0.2")), width=width, height=height))
        return opened[-1]

    yield top
    for terminal in opened:
        terminal.close()


@pytest.fixture
def once(environment: Environment) -> Callable[..., subprocess.CompletedProcess[str]]:
    def once(*arguments: str, **overrides: object) -> subprocess.CompletedProcess[str]:
        return run("top", *arguments, environment=environment(**{**UTF8, **overrides}))

    return once


def failed_job(conn: Conn, dirs: Dirs, message: str = "the gateway answered 400", **columns: Any) -> UUID:
    """With its source on disk, as a manual retry needs it."""
    return queued_job(
        conn, dirs, status="failed", error_code="GW_4XX", error_message=message, failed_at="now", **columns
    )


def short(job_id: UUID) -> str:
    return str(job_id)[:8]


# -- one frame --


def test_once_prints_one_frame_of_plain_text(conn: Conn, dirs: Dirs, once: Callable[..., Any]) -> None:
    register_server(conn, concurrency=4)
    message = "m" * 150
    failed, running = failed_job(conn, dirs, message), claimed(conn)
    insert_job(conn)
    done = once("--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "1 queued" in done.stdout
    assert "1 processing" in done.stdout
    assert "breaker: closed" in done.stdout
    assert "workers: 1 busy, 3 idle" in done.stdout
    assert re.search(rf"^host:1/1 +{running.id} ", done.stdout, re.MULTILINE)
    assert re.search(rf"^  {failed}  failed  GW_4XX .* {message}$", done.stdout, re.MULTILINE)


def test_once_with_json_prints_one_document(conn: Conn, dirs: Dirs, once: Callable[..., Any]) -> None:
    failed, running = failed_job(conn, dirs), claimed(conn)
    [line] = once("--once", "--json").stdout.splitlines()
    frame = json.loads(line)
    assert frame["jobs"] == {"queued": 0, "processing": 1, "failed": 1, "uploaded": 0, "complete": 0, "cancelled": 0}
    assert [row["id"] for row in frame["errors"]] == [str(failed)]
    assert [row["job_id"] for server in frame["servers"] for row in server["jobs"]] == [str(running.id)]
    assert frame["breaker"]["state"] == "closed"
    assert frame["completed_per_second"] == 0


def test_once_is_ascii_where_the_locale_is_c(conn: Conn, dirs: Dirs, once: Callable[..., Any]) -> None:
    failed_job(conn, dirs, "zu groß: 漢字")
    assert once("--once", LANG="C").stdout.isascii()


def test_once_on_a_terminal_is_cut_to_its_width(conn: Conn, dirs: Dirs, top: Top) -> None:
    for _ in range(30):
        failed_job(conn, dirs, "m" * 190)
    terminal = top("--once", width=90)
    assert terminal.wait() == 0
    eventually(lambda: terminal.written.count("GW_4XX") == 30, what="all the errors")
    assert max(map(len, ESCAPE.sub("", terminal.written).split("\n"))) == 90
    assert ALTERNATE not in terminal.written


def test_once_of_an_empty_database_is_a_frame_too(once: Callable[..., Any]) -> None:
    assert "0 queued" in once("--once").stdout


def test_without_a_terminal_it_says_in_one_line_what_to_add(once: Callable[..., Any]) -> None:
    done = once()
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"convertq: this is not a terminal: add --once [^\n]*\n", done.stderr)


@pytest.mark.parametrize("arguments", [("--json",), ("--once", "--interval", "0"), ("--interval", "soon")])
def test_wrong_usage_ends_with_2_and_one_line(once: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    done = once(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_database_that_is_down_from_the_beginning_ends_with_69(once: Callable[..., Any], top: Top) -> None:
    nowhere = "postgresql://postgres@127.0.0.1:1/nothing"
    assert once("--once", DATABASE_URL=nowhere).returncode == 69
    terminal = top(DATABASE_URL=nowhere)
    assert terminal.wait() == 69
    assert ALTERNATE not in terminal.written


# -- the live screen --


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_the_screen_fills_the_terminal_and_no_line_is_wider(
    conn: Conn, dirs: Dirs, top: Top, width: int, height: int
) -> None:
    register_server(conn)
    running = claimed(conn)
    failed = failed_job(conn, dirs, "m" * 190)
    lines = top(width=width, height=height).wait_for("done/s", short(running.id), short(failed))
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}
    assert lines[0].startswith("convertq top · ")
    assert lines[-1].startswith("q quit")


def test_what_happens_in_the_database_is_seen(conn: Conn, top: Top) -> None:
    terminal = top()
    terminal.wait_for("0 queued", "no job is being converted")
    register_server(conn)
    job = claimed(conn)
    terminal.wait_for("1 processing", "host:1/1", short(job.id))
    jobs.run(
        conn, "report_progress", **job.fence, lease_ttl=60,
        step="converting", percent=70, bytes_done=7, bytes_total=10, message=None,
    )  # fmt: skip
    terminal.wait_for("70% converting")
    assert jobs.complete(conn, job)
    terminal.wait_for("1 complete", "0.1, peak 0.1")
    jobs.set_breaker(conn, "open", probe_after="now")
    terminal.wait_for("breaker: open for")


def test_colours_are_used_where_the_terminal_has_them(conn: Conn, dirs: Dirs, top: Top) -> None:
    failed_job(conn, dirs)
    terminal = top()
    terminal.wait_for("1 failed")
    assert COLOUR.search(terminal.written)


def test_no_color_is_heeded(conn: Conn, dirs: Dirs, top: Top) -> None:
    failed_job(conn, dirs)
    terminal = top(NO_COLOR="1")
    terminal.wait_for("1 failed")
    assert not COLOUR.search(terminal.written)


def test_in_the_c_locale_the_screen_is_ascii(conn: Conn, dirs: Dirs, top: Top) -> None:
    failed_job(conn, dirs, "zu groß: 漢字")
    terminal = top(LANG="C")
    lines = terminal.wait_for("zu gro?: ????", "-- last errors")
    assert "".join(lines).isascii()
    assert terminal.written.isascii()


def test_a_dumb_terminal_gets_text_without_any_escape_sequence(conn: Conn, dirs: Dirs, top: Top) -> None:
    job_id = failed_job(conn, dirs)
    terminal = top(TERM="dumb")
    eventually(lambda: terminal.written.count("q quit") > 1, what="two screens, one below the other")
    assert terminal.written.count("convertq top") > 1  # the first line, where trouble would stand
    terminal.type("j")
    eventually(lambda: f"> {short(job_id)}" in terminal.written, what="the selection")
    terminal.type("q")
    assert terminal.wait() == 0
    assert "\x1b" not in terminal.written


def test_a_new_size_is_drawn_at_once(top: Top) -> None:
    terminal = top("--interval", "3600")
    terminal.wait_for("0 queued")
    terminal.resize(100, 30)
    lines = terminal.wait_for("0 queued", "q quit")
    assert (len(lines), len(lines[-1])) == (30, 100)


def test_a_hostile_file_name_cannot_move_the_cursor(conn: Conn, dirs: Dirs, top: Top) -> None:
    failed_job(conn, dirs, "\x1b[2J\x1b]0;owned\x07\nnext", original_filename="[red]\x1b[5m\r\n漢字.pdf")
    terminal = top(width=200, height=50)
    lines = terminal.wait_for(r"\x1b[2J\x1b]0;owned\x07\nnext", r"[red]\x1b[5m\r\n")
    assert len(lines) == 50
    assert "\x1b]0;" not in terminal.written
    assert "\x07" not in terminal.written


# -- keys --


def test_q_ends_it_with_0_and_gives_the_terminal_back(top: Top) -> None:
    terminal = top()
    terminal.wait_for("0 queued")
    terminal.type("q")
    assert terminal.wait() == 0
    assert terminal.is_restored()


def test_control_c_ends_it_with_130_and_gives_the_terminal_back(top: Top) -> None:
    terminal = top()
    terminal.wait_for("0 queued")
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert terminal.is_restored()
    assert "Traceback" not in terminal.written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_terminal_is_given_back(top: Top, number: signal.Signals) -> None:
    terminal = top()
    terminal.wait_for("0 queued")
    terminal.popen.send_signal(number)
    assert terminal.wait() == -number
    assert terminal.is_restored()


def test_it_ends_with_its_terminal(top: Top) -> None:
    terminal = top()
    terminal.wait_for("0 queued")
    terminal.hang_up()
    terminal.wait()


def test_control_z_gives_the_terminal_back_until_it_goes_on(top: Top) -> None:
    terminal = top()
    terminal.wait_for("0 queued")
    terminal.popen.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(terminal.popen.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert terminal.is_restored()
    screens = terminal.written.count(ALTERNATE)
    terminal.popen.send_signal(signal.SIGCONT)
    eventually(lambda: terminal.written.count(ALTERNATE) == screens + 1, what="the alternate screen again")
    terminal.wait_for("0 queued")
    terminal.type("q")
    assert terminal.wait() == 0


def test_arrows_and_j_and_k_select_a_job_in_the_list(conn: Conn, dirs: Dirs, top: Top) -> None:
    older, newer = failed_job(conn, dirs), failed_job(conn, dirs)
    terminal = top()
    terminal.wait_for(short(older), short(newer))
    terminal.type("j")
    terminal.wait_for(f"> {short(newer)}", str(newer))
    terminal.type("\x1b[B")
    terminal.wait_for(f"> {short(older)}", str(older))
    terminal.type("k")
    terminal.wait_for(f"> {short(newer)}")


def test_r_queues_the_selected_failed_job_again(conn: Conn, dirs: Dirs, top: Top) -> None:
    kept, chosen = failed_job(conn, dirs), failed_job(conn, dirs)
    terminal = top()
    terminal.wait_for(short(chosen))
    terminal.type("j")
    terminal.wait_for(f"> {short(chosen)}")
    terminal.type("r")
    terminal.wait_for(f"{chosen} queued", "1 queued", "1 failed")
    assert (status_of(conn, chosen), row_of(conn, chosen)["attempt_count"]) == ("queued", 0)
    assert status_of(conn, kept) == "failed"
    assert jobs.last_event(conn, chosen)["meta"] == {"reason": "manual"}


def test_r_without_a_selection_retries_nothing_and_says_how(conn: Conn, dirs: Dirs, top: Top) -> None:
    job_id = failed_job(conn, dirs)
    terminal = top()
    terminal.wait_for(short(job_id))
    terminal.type("r")
    terminal.wait_for("select a failed job first")
    assert status_of(conn, job_id) == "failed"


def test_a_failed_job_without_its_source_is_not_queued_and_the_reason_is_shown(
    conn: Conn, dirs: Dirs, top: Top
) -> None:
    job_id = failed_job(conn, dirs)
    Files(dirs.uploads, dirs.results).source(job_id).unlink()
    terminal = top(width=120)
    terminal.wait_for(short(job_id))
    terminal.type("jr")
    terminal.wait_for(f"{job_id}: its source file is gone")
    assert status_of(conn, job_id) == "failed"


def test_a_job_that_waits_for_its_retry_is_left_alone(conn: Conn, top: Top) -> None:
    job = claimed(conn)
    assert retry_later(conn, job)
    terminal = top(width=120)
    terminal.wait_for("retrying")
    terminal.type("jr")
    terminal.wait_for(f"{job.id}: it is queued; only failed and cancelled jobs are retried")
    assert row_of(conn, job)["retry_after"] is not None


def test_f_shows_all_then_failed_then_retrying_jobs(conn: Conn, dirs: Dirs, top: Top) -> None:
    waiting = claimed(conn)
    assert retry_later(conn, waiting)
    failed = failed_job(conn, dirs)
    terminal = top("--interval", "3600")
    terminal.wait_for("last errors: all", short(failed), short(waiting.id))
    terminal.type("f")
    eventually(lambda: short(waiting.id) not in "".join(terminal.wait_for("last errors: failed", short(failed))))
    terminal.type("/")
    eventually(lambda: short(failed) not in "".join(terminal.wait_for("last errors: retrying", short(waiting.id))))
    terminal.type("f")
    terminal.wait_for("last errors: all", short(failed), short(waiting.id))


def test_a_question_mark_explains_the_keys(top: Top) -> None:
    terminal = top()
    terminal.wait_for("q quit")
    terminal.type("?")
    terminal.wait_for("r: queue the selected failed job again")
    terminal.type("?")
    terminal.wait_for("q quit")


# -- the database goes away --


def test_a_database_that_goes_down_is_said_and_it_comes_back_by_itself(
    own_postgres: EmbeddedPostgres, top: Top
) -> None:
    terminal = top(DATABASE_URL=own_postgres.url())
    terminal.wait_for("0 queued")
    own_postgres.stop("immediate")
    terminal.wait_for("database unreachable, trying again", "0 queued")
    own_postgres.start()
    with psycopg.connect(own_postgres.url(), autocommit=True) as conn:
        conn.execute("INSERT INTO jobs (bytes, sha256, status) VALUES (1, %s, 'queued')", [uuid4().hex * 2])
    lines = terminal.wait_for("convertq top · ", "1 queued")
    assert "unreachable" not in "".join(lines)


def test_keys_are_heard_while_the_database_is_down(own_postgres: EmbeddedPostgres, top: Top) -> None:
    terminal = top(DATABASE_URL=own_postgres.url())
    terminal.wait_for("0 queued")
    own_postgres.stop("immediate")
    terminal.wait_for("database unreachable")
    terminal.type("q")
    assert terminal.wait() == 0
    assert terminal.is_restored()


# -- in tmux, as an operator has it --


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
@pytest.mark.parametrize(
    "overrides", [{}, {"NO_COLOR": "1"}, {"TERM": "vt100", "LANG": "C"}], ids=["plain", "no colour", "vt100, LANG=C"]
)
def test_in_tmux_the_screen_is_whole_and_the_shell_is_back_after_q(
    conn: Conn,
    dirs: Dirs,
    environment: Environment,
    tmux: Callable[..., str],
    width: int,
    height: int,
    overrides: dict[str, object],
) -> None:
    job_id = failed_job(conn, dirs, "m" * 190)
    variables = environment(**{**UTF8, "TERM": "screen-256color", **overrides})
    words = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in variables.items()), CONSOLE_SCRIPT, "top"])
    tmux("new-session", "-d", "-x", str(width), "-y", str(height), f"{words}; echo ended with $?; cat")

    def screen() -> list[str]:
        return tmux("capture-pane", "-p").splitlines()

    eventually(lambda: "q quit" in "\n".join(screen()), what="the screen")
    tmux("send-keys", "j")
    eventually(lambda: f"> {short(job_id)}" in "\n".join(screen()), what="the selection")
    lines = screen()
    assert len(lines) == height
    assert lines[0].startswith("convertq top")
    assert lines[-1].startswith("q quit")
    assert "".join(lines).isascii() == (overrides.get("LANG") == "C")
    assert bool(COLOUR.search(tmux("capture-pane", "-p", "-e"))) == (not overrides)
    tmux("send-keys", "q")
    eventually(lambda: "ended with 0" in "\n".join(screen()), what="the shell")
    assert "convertq top" not in "\n".join(screen())


# -- its statements --


def last_errors(conn: Conn, *states: str, limit: int = 50) -> list[UUID]:
    rows = jobs.run(conn, "list_last_errors", states=list(states) or ["failed", "retrying"], limit=limit)
    return [row["id"] for row in rows]


def test_the_last_error_is_the_first_in_the_list_however_old_its_job_is(conn: Conn) -> None:
    first, second = claimed(conn), claimed(conn, "host:1:aaaa/2")
    assert fail(conn, second)
    assert fail(conn, first)
    assert last_errors(conn) == [first.id, second.id]
    assert last_errors(conn, limit=1) == [first.id]


def test_a_job_that_waits_for_its_retry_is_listed_with_the_error_of_its_last_attempt(conn: Conn) -> None:
    job = claimed(conn)
    assert retry_later(conn, job)
    [row] = jobs.run(conn, "list_last_errors", states=["retrying"], limit=5)
    assert (row["state"], row["error_code"], row["error_message"]) == ("retrying", "GW_5XX", "the gateway answered 503")
    assert last_errors(conn, "failed") == []


def test_failed_jobs_are_listed_even_when_every_later_failure_was_retried(conn: Conn, dirs: Dirs) -> None:
    kept = failed_job(conn, dirs)
    for _ in range(3):
        later = failed_job(conn, dirs)
        jobs.run(conn, "retry_jobs", ids=[later])
    assert last_errors(conn, limit=2) == [kept]


def test_a_job_that_failed_twice_is_listed_once(conn: Conn) -> None:
    job = claimed(conn)
    assert fail(conn, job)
    jobs.run(conn, "retry_jobs", ids=[job.id])
    assert fail(conn, jobs.claim(conn))
    assert last_errors(conn) == [job.id]


def test_only_outcomes_of_the_last_seconds_are_counted(conn: Conn) -> None:
    assert jobs.complete(conn, claimed(conn))
    assert fail(conn, claimed(conn))
    old = insert_job(conn)
    conn.execute(
        "INSERT INTO job_events (job_id, event_type, at) VALUES (%s, 'complete', now() - interval '30 s'),"
        " (%s, 'complete', now() - interval '70 s')",
        [old, old],
    )
    [row] = jobs.run(conn, "count_last_outcomes")
    assert (row["completed_10s"], row["completed_60s"], row["failed_60s"]) == (1, 2, 1)


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [("count_last_outcomes", {}), ("list_last_errors", {"states": ["failed", "retrying"], "limit": 50})],
)
def test_no_refresh_reads_a_table_from_end_to_end(conn: Conn, statement: str, parameters: dict[str, Any]) -> None:
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, created_at, completed_at, error_code, failed_at, retry_after)"
        " SELECT 1, md5(n::text) || md5(n::text), status, now() - n * interval '1 minute', now(),"
        "        CASE status WHEN 'failed' THEN 'UNKNOWN' END, now(), CASE status WHEN 'queued' THEN now() END"
        "   FROM generate_series(1, 8000) AS n,"
        "        LATERAL (SELECT (ARRAY['complete', 'failed', 'queued'])[n % 3 + 1]) AS chosen (status)"
    )
    conn.execute("ANALYZE")
    plan = conn.execute(b"EXPLAIN " + sql.query(statement, "public"), parameters).fetchall()
    scanned = set(re.findall(r"Seq Scan on (job\w*)", "\n".join(line["QUERY PLAN"] for line in plan)))
    empty = "SELECT relname FROM pg_class WHERE relname LIKE 'job\\_events\\_%' AND pg_relation_size(oid) = 0"
    assert scanned - {row["relname"] for row in conn.execute(empty)} == set()  # partitions that are kept ahead
