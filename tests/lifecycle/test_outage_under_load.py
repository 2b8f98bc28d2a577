"""PostgreSQL gone in the middle of many jobs: nobody exits, and work goes on within seconds of its return."""

from __future__ import annotations

import time

from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import delayed
from tests.lifecycle.conftest import OwnDocuments
from tests.stand_in_gateway import StandInGateway
from tests.waiting import eventually

JOBS = 200
RECOVERS_WITHIN_SECONDS = 20.0  # of the database accepting connections; a lease that expires takes ten minutes
COMPLETE = "SELECT count(*) AS n FROM jobs WHERE status = 'complete'"


def complete(documents: Documents) -> int:
    row = documents.conn.execute(COMPLETE).fetchone()
    assert row is not None
    return int(row["n"])


def outage(
    seconds: float,
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
) -> None:
    """Stops it the hard way for so long, under load, and starts it again."""
    gateway.default = delayed(0.1)
    processes = [supervisor(DATABASE_URL=own_postgres.url(), WORKER_CONCURRENCY=4) for _ in range(2)]
    everybody = [process.family() for process in processes]
    documents = own_documents()
    jobs = documents.put_many(JOBS)
    eventually(lambda: complete(documents) >= 8, what="jobs under way")

    own_postgres.stop("immediate")
    back_at = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= back_at, what="the end of the outage")
    own_postgres.start()
    accepts = time.monotonic()
    afterwards = own_documents()
    before = complete(afterwards)
    eventually(lambda: complete(afterwards) > before, RECOVERS_WITHIN_SECONDS, "a completion after the outage")
    print(f"first completion {time.monotonic() - accepts:.2f} s after the database was back")

    afterwards.wait_for_all(jobs, "complete")
    assert [process.family() for process in processes] == everybody, "a process ended or was replaced"
    for process in processes:
        assert not process.events("worker_died")


def test_a_stopped_database_under_load_ends_nobody_and_is_back_in_use_within_seconds(
    supervisor: Supervisor,
    own_postgres: EmbeddedPostgres,
    own_documents: OwnDocuments,
    gateway: StandInGateway,
) -> None:
    outage(5, supervisor, own_postgres, own_documents, gateway)
