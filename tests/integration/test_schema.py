"""The tables: what no writer, in any language, can put into them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.jobs import Conn, insert_job, one, row_of

STATUSES = ["uploaded", "queued", "processing", "complete", "failed", "cancelled"]
BROKEN: list[tuple[str, str, dict[str, Any]]] = [
    ("file_is_not_empty", "queued", {"bytes": 0}),
    ("file_is_not_empty", "queued", {"bytes": -1}),
    ("status_is_known", "waiting", {}),
    ("attempts_are_not_negative", "queued", {"attempt_count": -1}),
    ("lease_held_exactly_while_processing", "processing", {"leased_by": None, "lease_expires_at": None}),
    ("lease_held_exactly_while_processing", "processing", {"leased_by": None}),
    ("lease_held_exactly_while_processing", "processing", {"lease_expires_at": None}),
    ("error_code_exactly_when_failed", "failed", {"error_code": None}),
    ("completed_at_when_complete", "complete", {"completed_at": None}),
    *[
        ("lease_held_exactly_while_processing", status, lease)
        for status in STATUSES if status != "processing"
        for lease in ({"leased_by": "x"}, {"lease_expires_at": "now"}, {"leased_by": "x", "lease_expires_at": "now"})
    ],
    *[("error_code_exactly_when_failed", status, {"error_code": "X"}) for status in STATUSES if status != "failed"],
    *[("result_path_only_when_complete", status, {"result_path": "x"}) for status in STATUSES if status != "complete"],
    *[("dead_letter_only_when_failed", status, {"dead_letter": True}) for status in STATUSES if status != "failed"],
]  # fmt: skip


def refusal(conn: Conn, status: str, **columns: Any) -> str | None:
    with pytest.raises(psycopg.errors.IntegrityError) as refused:
        insert_job(conn, status, **columns)
    return refused.value.diag.constraint_name


def test_every_invariant_has_a_name_and_holds(conn: Conn) -> None:
    found = [(name, refusal(conn, status, **columns)) for name, status, columns in BROKEN]
    assert [pair for pair in found if pair[0] != pair[1]] == []


def test_every_status_can_be_written_with_what_belongs_to_it(conn: Conn) -> None:
    for status in STATUSES:
        insert_job(conn, status)
    insert_job(conn, "complete", result_path="x")
    insert_job(conn, "failed", dead_letter=True)


def test_a_result_that_has_expired_leaves_its_job_complete(conn: Conn) -> None:
    job = insert_job(conn, "complete", result_path="x")
    conn.execute("UPDATE jobs SET result_path = NULL WHERE id = %s", [job])


def test_a_job_needs_only_its_size_and_its_hash(conn: Conn) -> None:
    job = one(conn, "INSERT INTO jobs (bytes, sha256) VALUES (1, repeat('a', 64)) RETURNING *")
    assert job["id"].version == 4
    assert job["created_at"] is not None
    expected = {
        "content_type": "application/pdf", "mapping": "pt_simon_invoice_v1", "pretty": True, "priority": 0,
        "status": "uploaded", "attempt_count": 0, "dead_letter": False, "download_count": 0, "owner_session_id": None,
        "retry_after": None, "queued_at": None, "expires_at": None, "duplicate_of": None,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected


@pytest.mark.parametrize("column", ["bytes", "sha256", "status", "mapping", "priority", "pretty", "created_at"])
def test_what_a_claim_reads_is_never_null(conn: Conn, column: str) -> None:
    with pytest.raises(psycopg.errors.NotNullViolation):
        insert_job(conn, **{column: None})


def test_an_owner_has_the_same_content_once(conn: Conn) -> None:
    same = {"owner_session_id": "o", "sha256": "a" * 64, "mapping": "m", "bytes": 5}
    insert_job(conn, **same)
    assert refusal(conn, "queued", **same) == "one_job_per_owner_and_content"
    for other in ({"owner_session_id": "p"}, {"sha256": "b" * 64}, {"mapping": "n"}, {"bytes": 6}):
        insert_job(conn, **{**same, **other})


def test_jobs_without_an_owner_are_not_deduplicated(conn: Conn) -> None:
    insert_job(conn, sha256="a" * 64)
    insert_job(conn, sha256="a" * 64)


def test_what_belongs_to_a_job_needs_the_job(conn: Conn) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        insert_job(conn, duplicate_of=uuid4())
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        conn.execute("INSERT INTO job_events (job_id, event_type) VALUES (gen_random_uuid(), 'retry')")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        conn.execute("INSERT INTO job_progress (job_id, step) VALUES (gen_random_uuid(), 'reading')")


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("INSERT INTO job_events (job_id, event_type) VALUES (%s, 'lost')", "event_type_is_known"),
        ("INSERT INTO job_progress (job_id, step) VALUES (%s, 'idling')", "step_is_known"),
        (
            "INSERT INTO job_progress (job_id, step, percent) VALUES (%s, 'reading', 101)",
            "percent_is_a_percentage",
        ),
        (
            "INSERT INTO job_dependencies SELECT id, id FROM jobs WHERE id = %s",
            "job_does_not_wait_for_itself",
        ),
    ],
)
def test_side_tables_know_their_words(conn: Conn, statement: Any, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        conn.execute(statement, [insert_job(conn)])
    assert refused.value.diag.constraint_name in (constraint, "dependencies_have_no_cycle")


def test_all_eleven_events_are_known(conn: Conn) -> None:
    job = insert_job(conn)
    words = [
        "created",
        "queued",
        "processing",
        "retry",
        "requeued",
        "reclaimed",
        "complete",
        "failed",
        "cancelled",
        "downloaded",
        "expired",
    ]
    for word in words:
        conn.execute("INSERT INTO job_events (job_id, event_type) VALUES (%s, %s)", [job, word])


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("state = 'ajar'", "breaker_state_is_known"),
        ("state = 'open'", "opened_at_exactly_when_not_closed"),
        ("opened_at = now()", "opened_at_exactly_when_not_closed"),
        ("by_hand = true", "opened_by_hand_is_open"),
        ("state = 'half_open', opened_at = now(), by_hand = true", "opened_by_hand_is_open"),
        ("trial_job = gen_random_uuid()", "trial_only_when_half_open"),
        ("only_row = false", "there_is_one_breaker"),
    ],
)
def test_the_breaker_is_never_in_two_minds(conn: Conn, change: str, constraint: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        conn.execute(f"UPDATE circuit_breaker SET {change}".encode())
    assert refused.value.diag.constraint_name == constraint


def test_there_is_one_breaker_and_it_is_closed(conn: Conn) -> None:
    assert one(conn, "SELECT state, by_hand, open_seconds FROM circuit_breaker") == {
        "state": "closed", "by_hand": False, "open_seconds": 0,
    }  # fmt: skip
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute("INSERT INTO circuit_breaker DEFAULT VALUES")


def test_times_are_with_their_zone(conn: Conn) -> None:
    columns = "SELECT FROM information_schema.columns WHERE table_schema = 'public' AND data_type = %s"
    assert conn.execute(columns, ["timestamp with time zone"]).fetchall()
    assert conn.execute(columns, ["timestamp without time zone"]).fetchall() == []


def test_lease_and_progress_columns_are_in_no_index(conn: Conn) -> None:
    definitions = " ".join(
        row["indexdef"]
        for row in conn.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename IN ('jobs', 'servers', 'job_progress')"
        )
    )
    for column in ("lease_expires_at", "leased_by", "updated_at", "last_heartbeat_at", "percent"):
        assert column not in definitions


def test_a_file_name_is_only_data(conn: Conn) -> None:
    name = "../../etc/passwd\n'; DROP TABLE jobs; --"
    assert row_of(conn, insert_job(conn, original_filename=name))["original_filename"] == name
