"""Waking up: one job wakes one worker, many jobs wake all, and polling alone is enough."""

from __future__ import annotations

import statistics
from datetime import timedelta

import psycopg
from convertq.cli.embedded import EmbeddedPostgres
from psycopg.rows import dict_row

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import delayed
from tests.lifecycle.conftest import OwnDocuments
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

WORKERS = 16
CLAIM = "-- claim_job:"
ASLEEP = {"WORKER_CONCURRENCY": WORKERS, "WORKER_POLL_INTERVAL_MS": 60000}


def log_statements(server: EmbeddedPostgres) -> None:
    """Every statement to the server's log, after the name of its session."""
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("ALTER SYSTEM SET log_statement = 'all'")
        conn.execute("ALTER SYSTEM SET log_line_prefix = '%a|'")
        conn.execute("SELECT pg_reload_conf()")
    with psycopg.connect(server.url(), autocommit=True, application_name="canary") as conn:
        eventually(lambda: conn.execute("SELECT 1") and "canary|" in server.log.read_text())


def sessions_that(server: EmbeddedPostgres, words: str, since: int) -> set[str]:
    """The names of the sessions that have sent this since the log was so many bytes long."""
    lines = server.log.read_bytes()[since:].decode().splitlines()
    return {line.partition("|")[0] for line in lines if words in line}


def wait_until_all_have_looked(server: EmbeddedPostgres, workers: int) -> None:
    """Each looks once when it starts; only then does it sleep."""
    eventually(lambda: len(sessions_that(server, CLAIM, 0)) == workers, what="a first look by everyone")


def wait_until_all_are_asleep(documents: Documents) -> None:
    busy = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'convertq:%' AND"
        " (state <> 'idle' OR state_change > clock_timestamp() - interval '0.1 s')"
    )
    eventually(lambda: documents.conn.execute(busy).fetchone() is None, what="quiet")


def test_one_job_wakes_at_most_two_of_sixteen_idle_workers(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
) -> None:
    log_statements(own_postgres)
    supervisor(DATABASE_URL=own_postgres.url(), **ASLEEP)
    wait_until_all_have_looked(own_postgres, WORKERS)
    documents = own_documents()
    gateway.default = delayed(0.1)  # time for a worker that was woken in vain to show it
    waits, wakers = [], []
    for _ in range(20):
        wait_until_all_are_asleep(documents)
        since = own_postgres.log.stat().st_size
        job_id = documents.put()
        documents.wait_for(job_id, "complete")
        wakers.append(len(sessions_that(own_postgres, CLAIM, since)))
        _, queued, processing, _ = documents.events(job_id)
        waits.append((processing["at"] - queued["at"]).total_seconds())
    median = statistics.median(waits)
    print(f"queued to processing: median {median * 1000:.1f} ms, worst {max(waits) * 1000:.1f} ms; woken {wakers}")
    assert max(wakers) <= 2
    assert median < 0.5


def test_a_burst_wakes_every_worker(supervisor: Supervisor, documents: Documents, gateway: StandInGateway) -> None:
    gateway.default = delayed(0.3)
    supervisor(**ASLEEP)
    jobs = documents.put_many(100)
    documents.wait_for_all(jobs, "complete", timeout=30)
    query = "SELECT count(DISTINCT meta ->> 'worker') AS workers FROM job_events WHERE event_type = 'processing'"
    assert documents.conn.execute(query).fetchone() == {"workers": WORKERS}


def test_jobs_that_come_one_by_one_while_all_are_asleep_are_all_served(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = delayed(0.2)
    supervisor(WORKER_POLL_INTERVAL_MS=60000, WORKER_CONCURRENCY=4)
    jobs = [documents.put() for _ in range(30)]
    documents.wait_for_all(jobs, "complete", timeout=15)


def test_a_retry_that_becomes_due_does_not_wait_for_a_wake_up(supervisor: Supervisor, documents: Documents) -> None:
    supervisor()
    job_id = documents.upload()
    due = documents.now() + timedelta(seconds=0.7)  # its wake-up comes, in vain, before that
    documents.insert(job_id, retry_after=due)
    assert documents.wait_for(job_id, "complete")["started_at"] >= due


def test_polling_alone_is_enough_when_notifications_are_lost(supervisor: Supervisor, documents: Documents) -> None:
    for trigger in ("follow_insert", "follow_transition"):
        documents.conn.execute(f"ALTER TABLE jobs DISABLE TRIGGER {trigger}".encode())
    supervisor(WORKER_POLL_INTERVAL_MS=200)
    for _ in range(3):
        documents.wait_for(documents.put(), "complete", timeout=3)


def test_behind_a_transaction_pooler_nobody_listens_and_polling_is_enough(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    log_statements(own_postgres)
    supervisor(DATABASE_URL=f"{own_postgres.url()}?pgbouncer=true", WORKER_POLL_INTERVAL_MS=200)
    documents = own_documents()
    documents.wait_for(documents.put(), "complete", timeout=3)
    assert sessions_that(own_postgres, "LISTEN", 0) == set()
    assert sessions_that(own_postgres, CLAIM, 0)


def test_schemas_in_one_database_do_not_wake_each_other(supervisor: Supervisor, own_postgres: EmbeddedPostgres) -> None:
    log_statements(own_postgres)
    supervisor(DATABASE_URL=own_postgres.url(), WORKER_POLL_INTERVAL_MS=60000)
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row) as conn:
        wait_until_all_have_looked(own_postgres, workers=2)
        since = own_postgres.log.stat().st_size
        conn.execute("SELECT pg_notify('convertq_another', '')")
        conn.execute("SELECT pg_notify('convertq_public', '')")
        eventually(lambda: sessions_that(own_postgres, CLAIM, since), what="the right channel wakes")
        claims = own_postgres.log.read_bytes()[since:].decode().count(CLAIM)
    assert 1 <= claims <= 2
