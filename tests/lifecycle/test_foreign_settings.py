"""A database with settings of somebody else, and rows that cannot be read: neither kills or blocks a worker."""

from __future__ import annotations

import pytest
from psycopg import sql

from tests.conftest import Supervisor
from tests.documents import Documents

SETTINGS = {
    "datestyle": "German", "intervalstyle": "sql_standard", "timezone": "Asia/Kathmandu", "client_encoding": "LATIN1",
    "default_transaction_isolation": "serializable", "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on", "search_path": "nowhere",
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_jobs_are_converted_whatever_the_database_says(supervisor: Supervisor, documents: Documents, name: str) -> None:
    change = sql.SQL("ALTER DATABASE {} SET {} = {}")
    conn = documents.conn
    conn.execute(change.format(sql.Identifier(conn.info.dbname), sql.SQL(name), sql.Literal(SETTINGS[name])))
    process = supervisor()
    documents.wait_for_all(documents.put_many(6), "complete")
    assert process.events("worker_died") == []
    assert process.events("db_down") == []


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("place", ["first", "in the middle"])
def test_a_row_that_cannot_be_read_ends_with_the_reason_and_the_others_go_on(
    supervisor: Supervisor, documents: Documents, attempts: int, place: str
) -> None:
    """In the middle of a queue it is claimed by the transaction that completes the job before it."""
    at = 0 if place == "first" else 2
    with documents.conn.transaction():
        jobs = [documents.put(b"%%PDF-1.7 %d" % number, priority=-number) for number in range(4)]
        documents.conn.execute("UPDATE jobs SET created_at = '0044-03-15 BC' WHERE id = %s", [jobs[at]])
    odd = jobs.pop(at)
    process = supervisor(WORKER_CONCURRENCY=1, RETRY_MAX_ATTEMPTS=attempts)
    documents.wait_for_all(jobs, "complete")
    documents.wait_for_all([odd])
    query = "SELECT status, error_code, error_message, dead_letter, attempt_count FROM jobs WHERE id = %s"
    row = documents.conn.execute(query, [odd]).fetchone()
    assert row is not None
    if row["status"] == "failed":  # else every value that the worker reads of it can be read
        assert row.pop("error_message").startswith("the row of this job cannot be read: timestamp too small")
        assert row == {"status": "failed", "error_code": "UNKNOWN", "dead_letter": True, "attempt_count": attempts}
    assert {documents.story(job_id) for job_id in jobs} == {"created queued processing complete"}
    assert process.events("worker_died") == []
    assert process.events("db_down") == []
