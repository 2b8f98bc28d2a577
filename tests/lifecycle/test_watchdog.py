"""The watchdog is fed while the supervisor's loop goes round, whatever the database does, and by nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Convertq
from tests.notify_socket import NotifySocket
from tests.tcp_proxy import TcpProxy

PING = "WATCHDOG=1"


@pytest.fixture
def told(tmp_path: Path) -> Iterator[NotifySocket]:
    with NotifySocket(tmp_path / "notify") as listening:
        yield listening


def test_a_database_that_is_down_does_not_keep_it_from_being_fed(
    own_postgres: EmbeddedPostgres, convertq: Convertq, told: NotifySocket
) -> None:
    process = convertq("worker", "run", DATABASE_URL=own_postgres.url(), NOTIFY_SOCKET=told.path)
    told.wait_for("READY=1")
    own_postgres.stop("immediate")
    told.wait_for("STATUS=2 workers, 0 busy, 0 done, waiting for the database")
    said = told.lines.count(PING)
    told.wait_for(PING, count=said + 5)
    own_postgres.start()
    process.wait_for_event("db_up")
    told.wait_for("STATUS=2 workers, 0 busy, 0 done, breaker closed", count=2)
    assert process.stop() == 0


def test_workers_that_die_together_while_the_database_is_silent_cost_one_wait_not_one_each(
    own_postgres: EmbeddedPostgres, convertq: Convertq, told: NotifySocket
) -> None:
    with TcpProxy(own_postgres.port) as proxy:
        url = own_postgres.url().replace(f":{own_postgres.port}/", f":{proxy.port}/")
        process = convertq(
            "worker", "run", DATABASE_URL=url, NOTIFY_SOCKET=told.path, WORKER_CONCURRENCY=12, WORKER_HEARTBEAT_SEC=1
        )  # fmt: skip
        told.wait_for("READY=1")
        proxy.swallow()
        for pid in process.children():
            os.kill(pid, signal.SIGKILL)
        process.wait_for_event("worker_died", count=12)
        died = [datetime.fromisoformat(event["timestamp"]) for event in process.events("worker_died")]
        assert max(died) - min(died) < timedelta(seconds=30)  # the watchdog's 120 are for a loop that hangs
        proxy.cut()
        proxy.listen()
        process.wait_for_event("db_up")
        assert process.stop() == 0


def test_a_missing_schema_is_named_in_the_status(
    own_postgres: EmbeddedPostgres, convertq: Convertq, told: NotifySocket
) -> None:
    with psycopg.connect(own_postgres.url(), autocommit=True) as conn:
        conn.execute("DROP TABLE schema_migrations CASCADE")
    process = convertq("worker", "run", DATABASE_URL=own_postgres.url(), NOTIFY_SOCKET=told.path)
    wanted = "the schema public has no convertq tables: run `convertq migrate`"
    told.wait_for(f"STATUS=2 workers, 0 busy, 0 done, {wanted}")
    said = told.lines.count(PING)
    told.wait_for(PING, count=said + 2)
    assert process.stop() == 0
