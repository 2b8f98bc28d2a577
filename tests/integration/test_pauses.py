"""Pauses by hand: in force at once, for every writer, without a cost for the jobs of others, and undone completely."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from convertq.queue.pauses import (
    Scope,
    describe_scope,
    end_pauses,
    move_paused_jobs,
    move_resumed_jobs,
    start_pause,
    start_sweep,
)
from convertq.queue.queue_events import Operator
from convertq.queue.scan_budget import START

from tests.conftest import Connect, Environment, Supervisor
from tests.integration.conftest import Place
from tests.jobs import (
    Conn,
    begin,
    claim,
    claimed,
    complete_and_claim,
    cursor,
    database,
    events_of,
    insert_job,
    insert_jobs,
    one,
    retry_later,
    row_of,
    run,
    try_claim,
    wait_until_blocked,
)
from tests.processes import run as run_convertq
from tests.waiting import eventually, wait_for_row
from tests.web_client import PDF, TOKEN, Visitor, error_of

ME = Operator("me@here")
ANNA = Scope(owner="anna")


def pause(conn: Conn, scope: Scope = ANNA) -> bool:
    return start_pause(database(conn), scope, ME)


def resume(conn: Conn, scope: Scope = ANNA, *, every: bool = False) -> list[Scope]:
    return end_pauses(database(conn), scope, ME, every=every)


def is_aside(conn: Conn, job_id: UUID) -> bool:
    """Outside the index of the claim, because its owner is paused."""
    row = one(conn, "SELECT paused, status, retry_after >= '9999-01-01' AS parked FROM jobs WHERE id = %s", job_id)
    assert not row["paused"] or (row["status"], row["parked"]) == ("queued", True)
    return bool(row["paused"])


def is_parked(conn: Conn, job_id: UUID) -> bool:
    """By another program, not by a pause."""
    return bool(one(conn, "SELECT retry_after = 'infinity' AS yes FROM jobs WHERE id = %s", job_id)["yes"])


# -- what is claimed --


@pytest.mark.parametrize(
    ("scope", "claimed_owners"),
    [
        (Scope(), []),
        (Scope(gateway="default"), []),
        (Scope(gateway="other"), ["anna", "ben", None]),
        (Scope(owner="anna"), ["ben", None]),
        (Scope("default", "anna"), ["ben", None]),
        (Scope("other", "anna"), ["anna", "ben", None]),
    ],
)
def test_a_pause_keeps_exactly_the_jobs_that_it_names_from_being_claimed(
    conn: Conn, scope: Scope, claimed_owners: list[str | None]
) -> None:
    before = [insert_job(conn, owner_session_id=owner) for owner in ("anna", "ben", None)]
    assert pause(conn, scope)
    assert not pause(conn, scope)

    def owners() -> list[str | None]:
        found: list[str | None] = []
        while job := try_claim(conn).job:
            found.append(row_of(conn, job)["owner_session_id"])
        return found

    assert owners() == claimed_owners  # by the claim itself: nothing has been moved yet
    after = [insert_job(conn, owner_session_id=owner) for owner in ("anna", "ben", None)]
    move_paused_jobs(database(conn), math.inf)
    assert owners() == claimed_owners
    assert resume(conn, scope) == [scope]
    move_resumed_jobs(database(conn), math.inf)
    owners()
    assert {row_of(conn, job_id)["status"] for job_id in before + after} == {"processing"}
    assert {tuple(events_of(conn, job_id)) for job_id in before} == {("created", "queued", "processing")}


def test_a_completion_claims_nothing_along_and_running_jobs_finish(conn: Conn) -> None:
    job = claimed(conn, owner_session_id="anna")
    insert_job(conn, owner_session_id="anna")
    pause(conn)
    complete_and_claim(conn, job)
    assert row_of(conn, job)["status"] == "complete"
    assert one(conn, "SELECT count(*) AS jobs FROM jobs WHERE status = 'processing'")["jobs"] == 0


def test_a_claim_says_that_the_gateway_is_paused(conn: Conn) -> None:
    insert_job(conn)
    assert not try_claim(conn).state.gateway_is_paused
    pause(conn, Scope())
    assert try_claim(conn).state.gateway_is_paused


def test_each_pause_ends_alone_and_all_at_once(conn: Conn) -> None:
    job_id = insert_job(conn, owner_session_id="anna")
    scopes = [Scope(), Scope("default"), ANNA, Scope("default", "anna")]
    assert [pause(conn, scope) for scope in scopes] == [True] * 4
    move_paused_jobs(database(conn), math.inf)
    assert resume(conn) == [ANNA]
    assert move_resumed_jobs(database(conn), math.inf) == 0  # the owner is still paused at this gateway
    assert is_aside(conn, job_id)
    assert resume(conn, Scope("other")) == []
    assert set(resume(conn, every=True)) == {scopes[0], scopes[1], scopes[3]}
    assert move_resumed_jobs(database(conn), math.inf) == 1
    assert claim(conn).id == job_id
    logged = [event["event_type"] for event in run(conn, "list_queue_events", limit=100)]
    assert (logged.count("paused"), logged.count("resumed"), logged.count("operator")) == (4, 4, 8)


# -- moving jobs out of the claim's index, and back --


def test_a_job_that_becomes_claimable_while_its_owner_is_paused_is_set_aside_at_once(conn: Conn) -> None:
    job = claimed(conn, owner_session_id="anna")
    waiting = insert_job(conn, owner_session_id="anna", retry_after="yesterday")
    scheduled = insert_job(conn, owner_session_id="anna", not_before="tomorrow")
    by_hand = insert_job(conn, owner_session_id="anna", retry_after="infinity")
    pause(conn)
    assert retry_later(conn, job, delay_ms=0)
    assert cursor(conn).promote_due_jobs() == 2
    new = insert_job(conn, owner_session_id="anna")
    foreign = insert_job(conn, owner_session_id="anna", paused=True, retry_after="infinity")
    assert [is_aside(conn, each) for each in (job.id, waiting, new)] == [True] * 3
    assert not is_aside(conn, scheduled)
    assert row_of(conn, scheduled)["retry_after"] == row_of(conn, scheduled)["not_before"]
    resume(conn)
    assert move_resumed_jobs(database(conn), math.inf) == 3
    assert {row_of(conn, each)["retry_after"] for each in (job.id, waiting, new)} == {None}
    # What another program has parked stays parked.
    assert [is_parked(conn, each) for each in (by_hand, foreign)] == [True, True]


def test_the_times_of_a_paused_job_can_be_read_by_every_driver(conn: Conn) -> None:
    pause(conn)
    job_id = insert_job(conn, owner_session_id="anna")
    found = conn.execute("SELECT retry_after FROM jobs WHERE id = %s", [job_id]).fetchone()
    assert found is not None
    assert (found["retry_after"].year, type(found["retry_after"])) == (9999, datetime)


def test_a_deadline_ends_the_wait_of_a_paused_job(conn: Conn) -> None:
    pause(conn)
    job_id = insert_job(conn, owner_session_id="anna", deadline="yesterday")
    assert run(conn, "expire_jobs")
    row = row_of(conn, job_id)
    assert (row["status"], row["paused"], row["retry_after"]) == ("failed", False, None)


def test_many_jobs_are_moved_slice_by_slice_and_all_of_them_back(conn: Conn) -> None:
    insert_jobs(conn, 2500)
    conn.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    conn.execute("UPDATE jobs SET owner_session_id = 'anna', sha256 = repeat(md5(id::text), 2), priority = bytes % 3")
    conn.execute("ALTER TABLE jobs ENABLE TRIGGER USER")
    pause(conn)
    sweep = start_sweep(database(conn))
    assert sweep is not None
    assert not sweep.run(database(conn), 0)  # one slice
    assert sweep.moved == 1000
    assert start_sweep(database(conn)) is not None  # a supervisor goes on where a command was killed
    assert move_paused_jobs(database(conn), math.inf) == 1500
    assert start_sweep(database(conn)) is None
    conn.execute("UPDATE pauses SET at = at - interval '2 minutes'")
    assert start_sweep(database(conn)) is None
    conn.execute("UPDATE pauses SET swept_at = at")
    assert start_sweep(database(conn)) is not None  # once more, for transactions that were open
    resume(conn)
    assert move_resumed_jobs(database(conn), 0) == 500
    assert move_resumed_jobs(database(conn), math.inf) == 2000
    assert conn.execute("SELECT id FROM jobs WHERE paused OR retry_after IS NOT NULL").fetchall() == []


def test_each_slice_that_is_moved_back_begins_after_the_dead_entries_of_those_before(conn: Conn) -> None:
    """They stay for as long as a transaction is open, here the one of the test."""
    pause(conn)
    conn.execute(
        "INSERT INTO jobs (bytes, sha256, status, owner_session_id, created_at)"
        " SELECT n, repeat('0', 64), 'queued', 'anna', now() - n * interval '1 s' FROM generate_series(1, 3000) AS n"
    )
    resume(conn)
    with conn.transaction():
        assert move_resumed_jobs(database(conn), math.inf) == 3000
        read = one(conn, "SELECT pg_stat_get_xact_tuples_returned('jobs_paused'::regclass) AS entries")["entries"]
    assert read < 2 * 3000


# -- races --


def test_a_submission_that_began_before_the_pause_is_not_claimed_after_it(conn: Conn, connect: Connect) -> None:
    writer = connect()
    with writer.transaction():
        job_id = insert_job(writer, owner_session_id="anna")
        pause(conn)
        assert move_paused_jobs(database(conn), math.inf) == 0
    assert not is_aside(conn, job_id)
    assert try_claim(conn).job is None
    conn.execute("UPDATE pauses SET at = at - interval '2 minutes', swept_at = swept_at - interval '2 minutes'")
    assert move_paused_jobs(database(conn), math.inf) == 1


def test_a_submission_that_saw_the_pause_is_found_after_the_resume(conn: Conn, connect: Connect) -> None:
    writer = connect()
    pause(conn)
    with writer.transaction():
        job_id = insert_job(writer, owner_session_id="anna")
        resume(conn)
        assert move_resumed_jobs(database(conn), math.inf) == 0
    assert is_aside(conn, job_id)
    assert move_resumed_jobs(database(conn), math.inf) == 1
    assert claim(conn).id == job_id


def test_a_claim_that_began_before_the_pause_keeps_its_job_and_moving_does_not_wait_for_it(
    conn: Conn, connect: Connect
) -> None:
    job_id, other = insert_job(conn, owner_session_id="anna"), connect()
    with conn.transaction():
        job = claim(conn)
        assert pause(other)
        assert move_paused_jobs(database(other), math.inf) == 0
    assert row_of(conn, job_id)["status"] == "processing"
    assert retry_later(conn, job, delay_ms=0)
    cursor(conn).promote_due_jobs()
    assert is_aside(conn, job_id)


def test_moving_and_claiming_the_same_job_leave_it_in_one_state(conn: Conn, connect: Connect) -> None:
    job_id, other = insert_job(conn, owner_session_id="anna"), connect()
    pause(conn)
    with other.transaction():
        assert run(other, "pause_jobs", **START.parameters, limit=10)[0]["moved"] == 1
        resume(conn)
        assert try_claim(conn).job is None  # the row is locked
    assert is_aside(conn, job_id)
    assert move_resumed_jobs(database(conn), math.inf) == 1
    assert claim(conn).id == job_id


def test_two_operators_who_pause_the_same_make_one_pause_and_a_resume_in_between_ends_it(
    conn: Conn, connect: Connect
) -> None:
    other = connect()
    with conn.transaction():
        assert pause(conn)
        second = begin(lambda: pause(other))
        wait_until_blocked(conn, other, second)
    assert second.result(30) is False
    with conn.transaction():
        assert resume(conn) == [ANNA]
        again = begin(lambda: pause(other))
        wait_until_blocked(conn, other, again)
    assert again.result(30) is True
    assert [pause_["owner"] for pause_ in run(conn, "list_pauses")] == ["anna"]


# -- supervisors, commands and the API --


def test_a_supervisor_continues_what_a_killed_command_has_begun_and_says_that_it_is_held(
    conn: Conn, supervisor: Supervisor
) -> None:
    process = supervisor(WORKER_CONCURRENCY=1)
    process.wait_for_event("ready")
    pause(conn, Scope("default"))
    insert_job(conn, owner_session_id="ben")
    assert process.wait_for_event("held")["reason"] == "the gateway is paused"
    job_id = insert_job(conn, owner_session_id="anna")
    pause(conn)
    eventually(lambda: is_aside(conn, job_id), what="the job is set aside")
    resume(conn, every=True)
    wait_for_row(conn, "SELECT id FROM jobs WHERE id = %s AND started_at IS NOT NULL", [job_id])


def test_the_commands_pause_show_and_resume(conn: Conn, environment: Environment) -> None:
    def cli(*words: str) -> tuple[int, str]:
        done = run_convertq(*words, environment=environment())
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    job_id = insert_job(conn, owner_session_id="anna")
    code, text = cli("pause", "--owner", "anna")
    assert (code, text) == (0, "owner anna is paused; 1 queued job set aside: `convertq resume --owner anna`")
    assert cli("pause", "--owner", "anna") == (0, "owner anna is paused already: `convertq resume --owner anna`")
    assert f"paused: owner anna is paused by {who(conn)} since" in cli("show", str(job_id))[1]
    assert "retry_after" not in cli("show", str(job_id))[1]
    shown = json.loads(run_convertq("show", str(job_id), "--json", environment=environment()).stdout)
    listed = json.loads(run_convertq("list", "--json", environment=environment()).stdout)
    assert (shown["paused"], shown["retry_after"], listed["retry_after"]) == (True, None, None)
    assert f"paused owner anna, by {who(conn)} since" in cli("stats")[1]
    assert f"paused: owner anna, by {who(conn)} since" in cli("top", "--once")[1]
    assert "warn pauses 1 in force" in cli("doctor")[1]
    assert cli("retry", "--now", str(job_id)) == (4, f"{job_id}: its owner is paused")
    [found] = json.loads(run_convertq("stats", "--json", environment=environment()).stdout)["pauses"]
    assert (found["gateway"], found["owner"], found.keys()) == (None, "anna", {"gateway", "owner", "by", "at"})
    for command in ("pause", "resume"):
        code, text = cli(command, "--gateway", "nowhere")
        assert (code, "there is no gateway 'nowhere'; known: default" in text) == (2, True)
        code, text = cli(command, "--owner", "")
        assert (code, "it is empty; omit it for all owners" in text) == (2, True)
    assert cli("resume", "--all", "--owner", "anna")[0] == 2
    code, text = cli("resume")
    assert (code, text.startswith("everything was not paused: nothing changed still paused: owner anna")) == (0, True)
    assert cli("pause", "--gateway", "default", "--owner", "anna")[1].startswith(
        "owner anna at gateway default is paused"
    )
    assert cli("resume", "--owner", "anna")[1].startswith("owner anna is resumed still paused: owner anna at gateway")
    assert cli("resume", "--all") == (0, "owner anna at gateway default is resumed")
    assert cli("resume", "--all") == (0, "nothing is paused")
    assert claim(conn).id == job_id


def who(conn: Conn) -> str:
    return str(run(conn, "list_pauses")[0]["by"])


def test_the_api_pauses_and_resumes_and_visitors_see_it(place: Place, operator: Visitor, visitor: Visitor) -> None:
    job_id = visitor.submitted(PDF + b"to be paused")

    def send(action: str, **scope: Any) -> dict[str, Any]:
        answer = operator.post(f"/api/admin/{action}", json=scope)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    paused = send("pause", owner=visitor.owner)
    assert (paused["changed"], paused["pauses"][0]["owner"]) == (True, visitor.owner)
    assert TOKEN not in str(paused)
    assert send("pause", owner=visitor.owner)["changed"] is False
    job = visitor.get(f"/api/jobs/{job_id}").json()
    assert (job["why"], job["display"]["word"], job["display"]["detail"]) == (
        "Paused by the operator of this service",
        "Paused",
        "by the operator",
    )
    assert visitor.get("/api/jobs").json()["jobs"][0]["why"] == job["why"]
    [shown] = operator.get("/api/admin/dashboard").json()["pauses"]
    assert (shown["what"], shown["scope"]) == (f"owner {visitor.owner}", {"owner": visitor.owner})
    assert send("resume", **shown["scope"]) == {"changed": True, "pauses": []}
    assert visitor.get(f"/api/jobs/{job_id}").json()["retry_after"] is None
    assert operator.post("/api/admin/pause").json()["pauses"][0]["owner"] is None
    assert visitor.get(f"/api/jobs/{job_id}").json()["display"]["state"] == "paused"
    assert send("resume", all=True) == {"changed": True, "pauses": []}
    for action, wrong in (
        ("pause", {"gateway": "nowhere"}),
        ("pause", {"owner": None}),
        ("pause", {"owner": ""}),
        ("pause", {"owner": "a\0b"}),
        ("pause", {"all": True}),
        ("pause", []),
        ("resume", {"all": 1}),
        ("resume", {"all": True, "owner": "a"}),
    ):
        assert error_of(operator.post(f"/api/admin/{action}", json=wrong)) == (400, "BAD_REQUEST")
    assert visitor.post("/api/admin/pause").status_code == 401


def test_a_scope_is_said_in_words() -> None:
    assert [describe_scope(scope) for scope in (Scope(), Scope("x"), Scope(owner="y"), Scope("x", "y"))] == [
        "everything",
        "gateway x",
        "owner y",
        "owner y at gateway x",
    ]


def test_the_same_pause_cannot_be_written_twice(conn: Conn) -> None:
    conn.execute("INSERT INTO pauses (by) VALUES ('me')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute("INSERT INTO pauses (by) VALUES ('you')")
