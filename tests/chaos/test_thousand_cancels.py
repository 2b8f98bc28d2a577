"""A thousand cancels at any moment of a job: a cancelled one never has a result, and every other one has its own."""

from __future__ import annotations

import random
import time
from collections import Counter
from uuid import UUID

import pytest
from convertq.queue.cancel import Cancelling, CancelVerdict
from convertq.queue.config import Config, read_config
from convertq.queue.database.database import Database
from convertq.queue.queue_events import Operator
from convertq.queue.store import open_store

from tests.conftest import Convertq, Environment
from tests.documents import Documents
from tests.gateway_behaviours import XML_TYPE, Behaviour, Exchange
from tests.stand_in_gateway import StandInGateway
from tests.storage import Storage, StoredDocuments
from tests.waiting import eventually

CANCELS, BACKLOG = 1_000, 60
ENDED = ("complete", "cancelled")
#: Half of them while they are converted, or just before or after it.
UNFINISHED = "SELECT id FROM jobs WHERE status = ANY (%s) ORDER BY random() LIMIT 1"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["directories", "s3"])
def test_a_thousand_cancelled_jobs_have_no_result(
    environment: Environment, convertq: Convertq, documents: Documents, gateway: StandInGateway,
    request: pytest.FixtureRequest, store: str,
) -> None:  # fmt: skip
    storage: Storage | None = request.getfixturevalue("storage") if store == "s3" else None
    settings = {"WORKER_CONCURRENCY": 4, **(storage.environment if storage else {})}
    if storage:
        documents = StoredDocuments(documents.conn, documents.uploads, documents.results)
        documents.storage = storage
    gateway.default = Behaviour("quick", answer_at_some_time)
    hosts = [convertq("worker", "run", **settings) for _ in range(2)]
    verdicts = cancel_a_thousand(read_config(environment(**settings)), documents)
    eventually(lambda: not count(documents, "NOT status = ANY (%s)"), 120, "every job terminal")
    assert [host.stop() for host in hosts] == [0, 0]

    assert verdicts[CancelVerdict.CANCELLED] == CANCELS
    complete = {row["id"] for row in documents.conn.execute("SELECT id FROM jobs WHERE status = 'complete'")}
    assert count(documents, "status = 'cancelled' AND status = ANY (%s)") == CANCELS
    found = Counter(storage_ids(storage) if storage else [UUID(path.stem) for path in documents.results.iterdir()])
    assert found == Counter(complete)
    row = documents.conn.execute(
        "SELECT count(*) AS n FROM job_events"
        " WHERE event_type = 'cancelled' AND coalesce(meta ->> 'from', 'processing') = 'processing'"
    ).fetchone()
    assert row is not None
    print(f"\n{CANCELS} cancels, {row['n']} of running jobs; {len(complete)} complete ({store})", flush=True)


def answer_at_some_time(exchange: Exchange) -> None:
    time.sleep(random.uniform(0, 0.05))
    exchange.answer(200, XML_TYPE, exchange.xml)


def cancel_a_thousand(config: Config, documents: Documents) -> Counter[CancelVerdict]:
    """By one user after another, each of any unfinished job."""
    verdicts: Counter[CancelVerdict] = Counter()
    dice = random.Random(1)
    database = Database.open(config.database, "client")
    try:
        while verdicts[CancelVerdict.CANCELLED] < CANCELS:
            if count(documents, "NOT status = ANY (%s)") < BACKLOG // 2:
                documents.put_many(BACKLOG)
            chosen = dice.choice([["processing"], ["queued", "processing"]])
            row = documents.conn.execute(UNFINISHED, [chosen]).fetchone()
            if row is not None:
                time.sleep(dice.choice([0, 0, 0.01, 0.03]))
                done = Cancelling(database, open_store(config), Operator("a test")).cancel(row["id"])
                verdicts[done.verdict] += 1
    finally:
        database.close()
    return verdicts


def count(documents: Documents, condition: str) -> int:
    """With the states in which a job ends."""
    row = documents.conn.execute(f"SELECT count(*) AS n FROM jobs WHERE {condition}".encode(), [list(ENDED)]).fetchone()
    assert row is not None
    return int(row["n"])


def storage_ids(storage: Storage) -> list[UUID]:
    return [UUID(key.split("/")[1]) for key in storage.keys("results/")]
