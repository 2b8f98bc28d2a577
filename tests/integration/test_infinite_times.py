"""Times that no calendar holds: parked and kept jobs work everywhere, nonsense is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest
from convertq.queue import scan_budget
from convertq.queue.doctor.queue import check_queue
from convertq.queue.jobs import list_jobs

from tests.conftest import Connect, Dirs, Environment, Supervisor, Web
from tests.files import Files
from tests.findings import MakeContext
from tests.jobs import (
    Conn,
    claim,
    claim_all,
    cursor,
    database,
    events_of,
    insert_job,
    one,
    queued_job,
    register_server,
    row_of,
)
from tests.processes import run as run_convertq
from tests.waiting import eventually

PAST = ("created_at", "queued_at", "started_at", "completed_at", "failed_at", "last_attempt_at", "first_downloaded_at")
#: the first and the last that PostgreSQL has, and what Python cannot move to another zone
FAR = (
    "0044-03-15 00:00 BC",
    "4713-01-01 00:00+00 BC",
    "0001-01-01 00:00+00",
    "9999-12-31 23:59+00",
    "294276-12-31 23:59+00",
)


# -- what makes no sense is refused --


@pytest.mark.parametrize("infinity", ["infinity", "-infinity"])
@pytest.mark.parametrize("column", PAST)
def test_what_has_happened_has_a_finite_time(conn: Conn, column: str, infinity: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        insert_job(conn, "complete", **{"completed_at": "now", column: infinity})
    assert refused.value.diag.constraint_name == "what_has_happened_has_a_finite_time"


@pytest.mark.parametrize("infinity", ["infinity", "-infinity"])
def test_a_lease_ends(conn: Conn, infinity: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        insert_job(conn, "processing", lease_expires_at=infinity)
    assert refused.value.diag.constraint_name == "what_has_happened_has_a_finite_time"


@pytest.mark.parametrize("column", ["started_at", "last_heartbeat_at", "stopped_at"])
def test_a_server_has_finite_times(conn: Conn, column: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        register_server(conn, **{column: "infinity"})
    assert refused.value.diag.constraint_name == "a_server_has_finite_times"


def test_updated_at_is_finite_whatever_a_writer_sends(conn: Conn) -> None:
    assert row_of(conn, insert_job(conn, updated_at="infinity"))["updated_at"].year > 2000


# -- claims --


@pytest.mark.parametrize("created_at", FAR)
def test_a_job_of_any_finite_age_is_claimed_like_any_other(
    supervisor: Supervisor, conn: Conn, dirs: Dirs, created_at: str
) -> None:
    jobs = [queued_job(conn, dirs, created_at=created_at), *(queued_job(conn, dirs) for _ in range(3))]
    process = supervisor(WORKER_CONCURRENCY=1)
    unfinished = "SELECT id FROM jobs WHERE status <> 'complete'"
    eventually(lambda: not conn.execute(unfinished).fetchall(), what="the jobs")
    for job_id in jobs:
        assert events_of(conn, job_id) == ["created", "queued", "processing", "complete"]
    assert process.stop() == 0


def test_the_position_holds_whatever_was_claimed_last(bounded: Conn, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every scan were too expensive to be repeated from the start."""
    monkeypatch.setattr(scan_budget, "FEW_ENTRIES", -1)
    register_server(bounded)
    mine = cursor(bounded)
    for created_at in ("4713-01-01 00:00+00 BC", "0044-03-15 00:00 BC", "0001-01-01 00:00+00", "294276-12-31 23:59+00"):
        insert_job(bounded, created_at=created_at)
        job = mine.claim_job("host:1:aaaa", "host:1:aaaa/1").job
        assert job is not None
    assert mine.claim_job("host:1:aaaa", "host:1:aaaa/1").job is None


def test_a_parked_job_is_not_claimed_and_costs_no_other_anything(conn: Conn, connect: Connect) -> None:
    parked, other = insert_job(conn, retry_after="infinity", priority=9), insert_job(conn)
    register_server(conn)
    assert claim_all(connect, "host:1:aaaa/1") == [other]
    conn.execute("UPDATE jobs SET retry_after = NULL WHERE id = %s", [parked])
    assert claim_all(connect, "host:1:aaaa/1") == [parked]


def test_a_retry_that_was_always_due_is_let_in(conn: Conn) -> None:
    job_id = insert_job(conn, retry_after="-infinity")
    assert claim(conn).id == job_id


# -- what commands show --


def said(environment: Environment, *arguments: str, **settings: object) -> str:
    done = run_convertq(*arguments, environment=environment(**settings))
    assert (done.returncode, done.stderr) == (0, ""), (arguments, done.stderr)
    return done.stdout


def kept_job(conn: Conn, dirs: Dirs, expires_at: str = "infinity") -> UUID:
    job_id = queued_job(conn, dirs)
    result = Files(dirs.uploads, dirs.results).result(job_id)
    result.write_bytes(b"<kept/>")
    conn.execute(
        "UPDATE jobs SET status = 'processing', leased_by = 'x', lease_expires_at = 'tomorrow' WHERE id = %s", [job_id]
    )
    conn.execute(
        "UPDATE jobs SET status = 'complete', leased_by = NULL, lease_expires_at = NULL, result_path = %s,"
        " completed_at = now(), expires_at = %s WHERE id = %s",
        [str(result), expires_at, job_id],
    )
    return job_id


def test_a_parked_job_is_listed_shown_and_explained(environment: Environment, conn: Conn, dirs: Dirs) -> None:
    job_id = str(queued_job(conn, dirs, retry_after="infinity"))
    [listed] = said(environment, "list", "--json").splitlines()
    assert json.loads(listed)["retry_after"] == "infinity"
    assert job_id in said(environment, "list")
    shown = said(environment, "show", job_id)
    assert "parked: its retry_after is infinity, so no worker takes it until that is changed" in shown
    assert any(line.split() == ["retry_after", "never"] for line in shown.splitlines())
    assert json.loads(said(environment, "show", job_id, "--json"))["retry_after"] == "infinity"
    waited = run_convertq("wait", job_id, "--timeout", "0.1", environment=environment())
    assert (waited.returncode, "Traceback" in waited.stderr) == (1, False)


def test_a_result_that_is_kept_without_end_is_shown_and_given_out(
    environment: Environment, conn: Conn, dirs: Dirs
) -> None:
    job_id = str(kept_job(conn, dirs))
    assert said(environment, "result", job_id) == "<kept/>"
    shown = said(environment, "show", job_id)
    assert ", kept without a limit: " in shown
    assert any(line.split() == ["expires_at", "never"] for line in shown.splitlines())
    assert said(environment, "wait", job_id) != ""
    assert json.loads(said(environment, "show", job_id, "--json"))["expires_at"] == "infinity"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("created_at", FAR)
def test_a_job_of_any_finite_age_is_listed_and_shown_in_every_zone(
    environment: Environment, conn: Conn, created_at: str, zone: str
) -> None:
    job_id = str(insert_job(conn, created_at=created_at, retry_after=created_at))
    assert job_id in said(environment, "list", TZ=zone)
    for command in (
        ["list", "--json"],
        ["show", job_id],
        ["show", job_id, "--json"],
        ["stats"],
        ["metrics"],
        ["top", "--once"],
    ):
        said(environment, *command, TZ=zone)


@pytest.mark.parametrize("command", ["stats", "stats --json", "top --once", "top --once --json", "servers", "metrics"])
def test_the_overviews_take_infinities(environment: Environment, conn: Conn, dirs: Dirs, command: str) -> None:
    queued_job(conn, dirs, retry_after="infinity")
    kept_job(conn, dirs)
    said(environment, *command.split())


def test_cleanup_keeps_what_never_expires_and_removes_what_always_had(
    environment: Environment, conn: Conn, dirs: Dirs
) -> None:
    kept = [kept_job(conn, dirs), kept_job(conn, dirs, "290000-01-01")]
    gone = [kept_job(conn, dirs, "-infinity"), kept_job(conn, dirs, "0044-03-15 BC")]
    assert "2 results" in said(environment, "cleanup")
    left = conn.execute("SELECT id FROM jobs WHERE result_path IS NOT NULL").fetchall()
    assert {row["id"] for row in left} == set(kept)
    assert len(gone) == 2


# -- lists, page by page --


def test_pages_of_a_list_leave_out_no_age(bounded: Conn) -> None:
    ids = [
        insert_job(bounded, created_at=created_at)
        for created_at in (*FAR, "290001-01-01", "290000-01-01", "0045-03-15 BC")
    ]
    mine, found = database(bounded), list[UUID]()
    page = list_jobs(mine, None, None, None, 2)
    while page:
        found += [row["id"] for row in page]
        page = list_jobs(mine, None, None, None, 2, (page[-1]["created_at"], page[-1]["id"]))
    assert len(found) == len(ids)
    assert set(found) == set(ids)


def test_times_compare_and_are_given_back_exactly(bounded: Conn) -> None:
    query = "SELECT '290000-01-01 00:00:00+00'::timestamptz AS far, 'infinity'::timestamptz AS never, now() AS now"
    row = one(bounded, query)
    assert row["far"] > row["now"]
    assert row["never"] > row["now"]
    assert row["never"] - row["now"] > row["now"] - datetime(2000, 1, 1, tzinfo=UTC)
    same = "SELECT %s = '290000-01-01 00:00:00+00'::timestamptz AS far, %s = 'infinity'::timestamptz AS never"
    assert one(bounded, same, row["far"], row["never"]) == {"far": True, "never": True}


def test_a_binary_answer_is_understood_too(bounded: Conn) -> None:
    query = "SELECT 'infinity'::timestamptz AS never, '-infinity'::timestamptz AS always, now() AS now"
    row = bounded.execute(query, binary=True).fetchone()
    assert row is not None
    assert row["always"] < row["now"] < row["never"]


# -- doctor --


def test_a_parked_job_is_no_job_that_stands_still(make_context: MakeContext, conn: Conn, dirs: Dirs) -> None:
    queued_job(conn, dirs, retry_after="infinity", queued_at="2020-01-01", created_at="2020-01-01")
    register_server(conn)
    finding = check_queue(make_context())
    assert (finding.state, finding.what) == ("ok", "nothing is queued (1 parked)")


# -- the web --


def test_lists_of_the_owner_and_the_operator_take_infinities(web: Web, conn: Conn, dirs: Dirs) -> None:
    site = web()
    visitor, operator = site.visitor(), site.operator()
    parked = queued_job(conn, dirs, owner_session_id=visitor.owner, retry_after="infinity")
    queued_job(conn, dirs, owner_session_id=visitor.owner, created_at="0044-03-15 BC")
    queued_job(conn, dirs, owner_session_id=visitor.owner, created_at="294276-12-31")
    register_server(conn)
    for answer in (visitor.get("/api/jobs"), operator.get("/api/admin/jobs")):
        assert answer.status_code == 200, answer.text
        assert {job["retry_after"] for job in answer.json()["jobs"]} == {"infinity", None}
        assert len(answer.json()["jobs"]) == 3
    one_job = visitor.get(f"/api/jobs/{parked}").json()
    assert one_job["retry_after"] == "infinity"
    assert one_job["why"] == "Set aside: it waits until the operator lets it go on"
    history = operator.get("/api/admin/history")
    assert (history.status_code, len(history.json()["minutes"])) == (200, 60)
    page = visitor.get("/")
    assert (page.status_code, "Set aside" in page.text) == (200, True)
    assert site.process.events("web_error") == []
