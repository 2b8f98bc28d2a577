"""Waking up: one job wakes one worker, many jobs wake all, and polling alone is enough."""

from __future__ import annotations

import re
import signal
import statistics
import threading
import time
from datetime import timedelta

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from convertq.worker.supervisor.waiting_place import CHECK_AFTER_SECONDS
from psycopg.rows import dict_row

from tests.conftest import Connect, Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import delayed, held
from tests.jobs import together
from tests.lifecycle.conftest import OwnDocuments
from tests.stand_in_gateway import StandInGateway
from tests.waiting import Row, eventually

WORKERS = 16
HOSTS = 8
#: The parameters of a claim of its own: it completes nothing.
CLAIM = r"DETAIL: .*= '\[\]'"
NEVER_POLLS = {"WORKER_POLL_INTERVAL_MS": 3_600_000}  # longer than any test waits
ASLEEP = {"WORKER_CONCURRENCY": WORKERS, **NEVER_POLLS}


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
    return {line.partition("|")[0] for line in lines if re.search(words, line)}


def wait_until_all_have_looked(server: EmbeddedPostgres, workers: int) -> None:
    """Each looks once when it starts; only then does it sleep."""
    eventually(lambda: len(sessions_that(server, CLAIM, 0)) == workers, what="a first look by everyone")


def wait_for_waiting_hosts(conn: psycopg.Connection[Row], hosts: int) -> None:
    """Until so many supervisors have shown the database that they wait for jobs."""
    places = (
        "SELECT count(*) AS places FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
        " AND objid BETWEEN 1 AND 64 AND mode = 'ExclusiveLock'"
    )
    eventually(lambda: conn.execute(places).fetchone() == {"places": hosts}, what=f"{hosts} hosts that wait")


def wait_until_all_are_asleep(documents: Documents) -> None:
    busy = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'convertq:%' AND"
        " (state <> 'idle' OR state_change > clock_timestamp() - interval '0.1 s')"
    )
    eventually(lambda: documents.conn.execute(busy).fetchone() is None, what="quiet")


def wait_until_nobody_looks(postgres: EmbeddedPostgres) -> None:
    """A host that was notified looks again a little later, for jobs that it may have missed; then it is idle."""
    quiet_seconds = CHECK_AFTER_SECONDS[-1] + 0.1
    eventually(lambda: time.time() - postgres.log.stat().st_mtime > quiet_seconds, what="no statement for a while")


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


def test_one_job_costs_eight_idle_hosts_at_most_two_claims(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    """The one that finds the job, and the one that the same worker makes after it."""
    log_statements(own_postgres)
    for _ in range(HOSTS):
        supervisor(DATABASE_URL=own_postgres.url(), WORKER_CONCURRENCY=2, **NEVER_POLLS)
    wait_until_all_have_looked(own_postgres, HOSTS * 2)
    documents = own_documents()
    wait_for_waiting_hosts(documents.conn, HOSTS)
    counts = []
    for _ in range(10):
        wait_until_nobody_looks(own_postgres)
        since = own_postgres.log.stat().st_size
        documents.wait_for(documents.put(), "complete")
        wait_until_nobody_looks(own_postgres)
        counts.append(len(re.findall(CLAIM, own_postgres.log.read_bytes()[since:].decode())))
    assert max(counts) <= 2, counts


def test_a_burst_wakes_every_worker_of_every_host(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    answered = threading.Event()
    gateway.default = held(answered)
    for _ in range(4):
        supervisor(WORKER_CONCURRENCY=2, **NEVER_POLLS)
    wait_for_waiting_hosts(documents.conn, 4)
    jobs = documents.put_many(40)
    gateway.wait_for(8)
    answered.set()
    documents.wait_for_all(jobs, "complete")
    query = "SELECT count(DISTINCT meta ->> 'worker') AS workers FROM job_events WHERE event_type = 'processing'"
    assert documents.conn.execute(query).fetchone() == {"workers": 8}


def test_a_host_whose_workers_are_all_busy_passes_the_wake_up_on(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    """The jobs come one by one, each while all before it are still converted."""
    answered = threading.Event()
    gateway.default = held(answered)
    for _ in range(4):
        supervisor(WORKER_CONCURRENCY=1, **NEVER_POLLS)
    wait_for_waiting_hosts(documents.conn, 4)
    for _ in range(4):
        documents.wait_for(documents.put(), "processing")
    answered.set()


def test_jobs_that_many_submit_at_the_same_time_are_all_picked_up_at_once(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway, connect: Connect
) -> None:
    """Only one of the transactions that end together notifies."""
    answered = threading.Event()
    gateway.default = held(answered)
    supervisor(**ASLEEP)
    wait_for_waiting_hosts(documents.conn, 1)
    writers = [connect() for _ in range(WORKERS)]
    jobs = [documents.upload() for _ in writers]
    insert = "INSERT INTO jobs (id, bytes, sha256, status) VALUES (%s, 15, repeat('0', 64), 'queued')"
    pairs = zip(writers, jobs, strict=True)
    together(*[lambda writer=writer, job=job: writer.execute(insert, [job]) for writer, job in pairs])
    documents.wait_for_all(jobs, "processing")
    answered.set()


def test_a_host_that_was_cut_off_waits_again_when_it_is_back(supervisor: Supervisor, documents: Documents) -> None:
    supervisor(**NEVER_POLLS)
    wait_for_waiting_hosts(documents.conn, 1)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'convertq:%/supervisor'"
    documents.conn.execute(cut)
    wait_for_waiting_hosts(documents.conn, 1)
    documents.wait_for(documents.put(), "complete")


def test_a_host_that_stops_lets_the_others_be_notified(supervisor: Supervisor, documents: Documents) -> None:
    leaving = supervisor(**NEVER_POLLS)
    supervisor(**NEVER_POLLS)
    wait_for_waiting_hosts(documents.conn, 2)
    leaving.send(signal.SIGTERM)
    wait_for_waiting_hosts(documents.conn, 1)
    for _ in range(5):
        documents.wait_for(documents.put(), "complete")


def test_a_burst_wakes_every_worker(supervisor: Supervisor, documents: Documents, gateway: StandInGateway) -> None:
    answered = threading.Event()
    gateway.default = held(answered)
    supervisor(**ASLEEP)
    jobs = documents.put_many(100)
    gateway.wait_for(WORKERS)
    answered.set()
    documents.wait_for_all(jobs, "complete")
    query = "SELECT count(DISTINCT meta ->> 'worker') AS workers FROM job_events WHERE event_type = 'processing'"
    assert documents.conn.execute(query).fetchone() == {"workers": WORKERS}


def test_jobs_that_come_one_by_one_while_all_are_asleep_are_all_served(
    supervisor: Supervisor, documents: Documents, gateway: StandInGateway
) -> None:
    gateway.default = delayed(0.2)
    supervisor(**NEVER_POLLS, WORKER_CONCURRENCY=4)
    jobs = [documents.put() for _ in range(30)]
    documents.wait_for_all(jobs, "complete")


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
        documents.wait_for(documents.put(), "complete")


def test_behind_a_transaction_pooler_nobody_listens_and_polling_is_enough(
    supervisor: Supervisor, own_postgres: EmbeddedPostgres, own_documents: OwnDocuments
) -> None:
    log_statements(own_postgres)
    supervisor(DATABASE_URL=f"{own_postgres.url()}?pgbouncer=true", WORKER_POLL_INTERVAL_MS=200)
    documents = own_documents()
    documents.wait_for(documents.put(), "complete")
    assert sessions_that(own_postgres, "-- start_waiting:", 0) == set()
    assert sessions_that(own_postgres, "EXECUTE convertq_complete_and_claim_", 0)


def test_schemas_in_one_database_do_not_wake_each_other(supervisor: Supervisor, own_postgres: EmbeddedPostgres) -> None:
    log_statements(own_postgres)
    supervisor(DATABASE_URL=own_postgres.url(), **NEVER_POLLS)
    with psycopg.connect(own_postgres.url(), autocommit=True, row_factory=dict_row) as conn:
        wait_until_all_have_looked(own_postgres, workers=2)
        wait_for_waiting_hosts(conn, 1)
        since = own_postgres.log.stat().st_size
        conn.execute("SELECT pg_notify('convertq_another_1', '')")
        conn.execute("SELECT pg_notify('convertq_public_1', '')")
        eventually(lambda: sessions_that(own_postgres, CLAIM, since), what="the right channel wakes")
        claims = len(re.findall(CLAIM, own_postgres.log.read_bytes()[since:].decode()))
    assert 1 <= claims <= 2
