"""The log of the queue: each change of the breaker and each change by hand, once, with who made it."""

from __future__ import annotations

import json
import socket
from typing import Any

import psycopg
import pytest
from convertq import sql
from convertq.cli.migrate import record_migrations
from convertq.queue.errors import Code, Failure
from convertq.queue.queue_events import QueueEventType, describe, operator_with_token

from tests.conftest import Dirs, Environment
from tests.integration.conftest import Place
from tests.jobs import Conn, claimed, database, fail, insert_job, one, queued_job, run, set_breaker
from tests.processes import run as run_convertq
from tests.web_client import PDF, TOKEN, Visitor

GATEWAY_DOWN = Failure(Code.GW_5XX, "the gateway answered 503", called=True, gateway_status=503, gateway_ms=5)


def logged(conn: Conn) -> list[dict[str, Any]]:
    """Oldest first."""
    return list(reversed(run(conn, "list_queue_events", limit=100)))


def types(conn: Conn) -> list[str]:
    return [event["event_type"] for event in logged(conn)]


def test_the_table_knows_the_types_of_the_code(conn: Conn) -> None:
    for event_type in QueueEventType:
        run(conn, "record_queue_event", event_type=event_type, meta="{}")
    with pytest.raises(psycopg.errors.CheckViolation):
        run(conn, "record_queue_event", event_type="other", meta="{}")


def test_an_opening_and_a_closing_have_one_event_each_however_many_trials_lie_between(conn: Conn) -> None:
    job = claimed(conn)
    with conn.transaction():
        fail(conn, job, GATEWAY_DOWN)
        run(conn, "trip_breaker", gateway="default", window=1, threshold=0.5, cooldown_ms=60_000)
    trial = insert_job(conn)
    set_breaker(conn, "half_open", opened_at="yesterday", trial_job=trial)
    set_breaker(conn, "open", opened_at="yesterday")
    set_breaker(conn, "half_open", opened_at="yesterday", trial_job=trial)
    assert run(conn, "close_breaker", id=trial)
    opened, closed = logged(conn)
    assert (opened["event_type"], opened["meta"]) == ("breaker_opened", {"gateway": "default"})
    assert (closed["event_type"], closed["meta"]["gateway"]) == ("breaker_closed", "default")
    assert closed["meta"]["open_seconds"] > 3600


def test_migrations_by_hand_are_recorded_with_who_applied_them(conn: Conn) -> None:
    record_migrations(database(conn), [])
    record_migrations(database(conn), list(sql.migrations())[:9])
    assert logged(conn) == [], "there was nothing to do, or no table yet"
    record_migrations(database(conn), list(sql.migrations())[8:11])
    [event] = logged(conn)
    assert (event["event_type"], event["meta"]["versions"]) == ("operator", "0009 to 0011")
    assert describe(event).startswith("migrate, 0009 to 0011, by ")


def test_a_change_that_is_rolled_back_has_no_event(conn: Conn) -> None:
    with conn.transaction():
        assert run(conn, "open_breaker_by_hand", gateways=["default"])
        raise psycopg.Rollback
    assert logged(conn) == []


def test_nobody_changes_the_log_and_cleanup_removes_what_is_old(conn: Conn, environment: Environment) -> None:
    for days in (200, 1):
        conn.execute("INSERT INTO queue_events (event_type, at) VALUES ('held', now() - %s * interval '1 day')", [days])
    for statement in ("UPDATE queue_events SET meta = '{}'", "DELETE FROM queue_events", "TRUNCATE queue_events"):
        with pytest.raises(psycopg.errors.RestrictViolation, match="queue_events is append-only"):
            conn.execute(statement.encode())
    listed = run_convertq("cleanup", "--dry-run", environment=environment())
    assert "queue event 1 (happened" in listed.stdout
    assert types(conn) == ["held", "held"]
    assert "1 event," in run_convertq("cleanup", environment=environment()).stdout
    assert types(conn) == ["held", "operator"]


def test_commands_that_change_something_by_hand_say_who_did_it(
    conn: Conn, dirs: Dirs, environment: Environment
) -> None:
    job_id = queued_job(conn, dirs)
    conn.execute("UPDATE jobs SET status = 'failed', error_code = 'GW_5XX' WHERE id = %s", [job_id])
    for words in (["breaker", "open"], ["breaker", "open"], ["breaker", "close"], ["retry", str(job_id)],
                  ["retry", str(job_id)], ["forget", str(job_id)]):  # fmt: skip
        run_convertq(*words, environment=environment(SUDO_USER="alice"))
    found = [event["meta"] for event in logged(conn) if event["event_type"] == "operator"]
    assert [meta["command"] for meta in found] == ["breaker open", "breaker close", "retry", "forget"]
    assert {meta["by"].partition("@")[2] for meta in found} == {socket.gethostname()}
    assert (found[2]["jobs"], found[2]["ids"], found[3]["jobs"]) == (1, [str(job_id)], 1)
    assert str(job_id) not in str(found[3])
    text = run_convertq("log", environment=environment()).stdout.splitlines()
    assert text[0].split() == ["WHEN", "EVENT", "DETAILS"]
    assert text[1].endswith(f"forget, 1 job, by {found[3]['by']}")
    newest = run_convertq("log", "--limit", "1", "--json", environment=environment())
    assert json.loads(newest.stdout)["meta"] == found[3]


def test_the_api_names_the_token_by_its_fingerprint_and_the_owner_not_at_all(
    place: Place, operator: Visitor, visitor: Visitor
) -> None:
    job_id = visitor.submitted(PDF + b"of the log")
    assert fail(place.conn, place.claim(job_id))
    assert visitor.post(f"/api/jobs/{job_id}/retry").status_code == 202
    assert fail(place.conn, place.claim(job_id))
    operator.post("/api/admin/retry-failed", json={"ids": [str(job_id)]})
    for action in ("open", "close"):
        operator.post(f"/api/admin/breaker/{action}")
    events = operator.get("/api/admin/queue-events").json()["events"]
    by_hand = [event["meta"] for event in events if event["event_type"] == "operator"]
    assert [meta["command"] for meta in by_hand] == ["breaker close", "breaker open", "retry"]
    assert {meta["by"] for meta in by_hand} == {operator_with_token(TOKEN).name}
    assert TOKEN not in str(events)
    assert len(operator.get("/api/admin/queue-events?limit=2").json()["events"]) == 2
    assert operator.get("/api/admin/queue-events?limit=0").status_code == 400
    assert visitor.get("/api/admin/queue-events").status_code == 401
    shown = operator.get("/api/admin/dashboard").json()["events"]
    assert [(event["word"], event["tone"]) for event in shown[:2]] == [("operator", ""), ("breaker closed", "good")]
    assert [event["id"] for event in shown] == [event["id"] for event in events][: len(shown)]


def test_an_event_that_another_program_wrote_is_shown_as_it_is() -> None:
    assert describe({"meta": {"jobs": "many", "colour": ["red"], "open_seconds": "x"}}) == "many, x, colour ['red']"


def test_the_statement_takes_no_id_from_its_writer(conn: Conn) -> None:
    with pytest.raises(psycopg.errors.GeneratedAlways):
        conn.execute("INSERT INTO queue_events (id, event_type) VALUES (7, 'held')")
    assert one(conn, "SELECT count(*) AS events FROM queue_events")["events"] == 0
