"""The status that every open page polls: true, and cheap however many ask and however many jobs are new."""

from __future__ import annotations

import time

from convertq.embedded.postgres import EmbeddedPostgres

from tests.conftest import Web
from tests.jobs import Conn, insert_job, insert_jobs, uncounted_events
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually
from tests.web_client import Site, error_of

MANY = 30_000  # jobs: three times as many events as are left for the next reader
ASKED = 50
PACKETS_OF_A_READ = 8  # begin, three statements, commit, and the pool's check of the connection


def test_new_jobs_are_counted_where_no_supervisor_runs(site: Site, conn: Conn) -> None:
    """Otherwise each poll would read every event since the last supervisor, and there are more and more of them."""
    insert_jobs(conn, MANY)
    visitor = site.visitor()
    assert visitor.get("/api/status").json() == {
        "breaker": "closed", "gateways": {"default": "closed"}, "queue_depth": MANY,
    }  # fmt: skip
    eventually(lambda: uncounted_events(conn) < 10_000, what="the events are aggregated")
    insert_job(conn, "queued")
    eventually(lambda: visitor.get("/api/status").json()["queue_depth"] == MANY + 1, what="the new job is counted")


def test_many_pages_cost_one_read_a_second(web: Web, own_postgres: EmbeddedPostgres) -> None:
    with TcpProxy(own_postgres.port) as proxy:
        site = web(DATABASE_URL=own_postgres.url().replace(str(own_postgres.port), str(proxy.port)))
        visitor = site.visitor()
        assert visitor.get("/api/status").status_code == 200
        before, began = len(proxy.packets), time.monotonic()
        for _ in range(ASKED):
            assert visitor.get("/api/status").status_code == 200
        seconds = time.monotonic() - began
        assert len(proxy.packets) - before <= PACKETS_OF_A_READ * (seconds + 1)


def test_a_database_that_is_away_is_told_to_every_page_and_forgotten_when_it_is_back(
    web: Web, own_postgres: EmbeddedPostgres
) -> None:
    site = web(DATABASE_URL=own_postgres.url())
    visitor = site.visitor()
    assert visitor.get("/api/status").status_code == 200
    own_postgres.stop()
    eventually(lambda: visitor.get("/api/status").status_code == 503, what="it is said")
    assert error_of(visitor.get("/api/status")) == (503, "UNAVAILABLE")
    own_postgres.start()
    eventually(lambda: visitor.get("/api/status").status_code == 200, what="it is back")
