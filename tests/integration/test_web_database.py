"""What the web does without its database: it says so in words, at once, lives on, and is back by itself."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import psycopg
from convertq.embedded.postgres import EmbeddedPostgres
from requests import Response

from tests.conftest import Web, migrate
from tests.jobs import Conn, one, together
from tests.standby import DemotedPostgres
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually
from tests.web_client import PDF, Site, Visitor, error_of

ROUTES = ("/api/jobs", "/api/status", f"/api/jobs/{uuid4()}", "/api/admin/stats", "/metrics")


def says_so(site: Site, visitor: Visitor) -> None:
    """Every route that needs the database, in words that tell nothing of where it is."""
    operator = site.operator()
    for route in ROUTES:
        answer = operator.get(route)
        assert error_of(answer) == (503, "UNAVAILABLE")
        assert answer.json()["error"]["message"].startswith("the queue's database is not reachable")
        assert answer.headers["Retry-After"]
    assert error_of(visitor.submit()) == (503, "UNAVAILABLE")
    assert visitor.post(f"/api/jobs/{uuid4()}/retry").status_code == 503


def test_a_database_that_stops_and_starts(web: Web, own_postgres: EmbeddedPostgres) -> None:
    site = web(DATABASE_URL=own_postgres.url(), WEB_PROCESSES=2)
    visitor = site.visitor()
    job_id = visitor.submitted()
    assert visitor.get("/ready").json() == {"status": "ready"}
    own_postgres.stop()
    eventually(lambda: visitor.get("/ready").status_code == 503, what="not ready")
    says_so(site, visitor)
    assert visitor.get("/health").json() == {"status": "alive"}
    not_ready = visitor.get("/ready").json()["error"]["message"]
    assert not_ready == "not ready: the database is not reachable"
    for_operators = site.operator().get("/ready").json()["error"]["message"]
    assert "127.0.0.1" in for_operators
    assert str(own_postgres.port) in for_operators
    page = visitor.get("/")
    assert page.status_code == 503
    assert "text/html" in page.headers["Content-Type"]
    own_postgres.start()
    eventually(lambda: visitor.get("/ready").status_code == 200, what="ready again")
    told = site.process.events("db_down")

    def all_are_back() -> bool:
        return visitor.get("/api/jobs").ok and len(site.process.events("db_up")) == len(told)

    eventually(all_are_back, what="each process that had noticed is back")
    assert visitor.get(f"/api/jobs/{job_id}").json()["status"] == "queued"
    assert visitor.submit(PDF + b"%").status_code == 201
    assert 1 <= len(told) <= 2  # each process once, and which one it was
    assert len({event["pid"] for event in told}) == len(told)
    assert {event["pid"] for event in site.process.events("db_up")} <= set(site.process.children())
    assert site.process.events("web_error") == []


def test_it_starts_before_its_database_and_before_its_tables(web: Web) -> None:
    with EmbeddedPostgres(port=0) as postgres:
        postgres.stop()
        site = web(DATABASE_URL=postgres.url())
        visitor = site.visitor()
        assert visitor.get("/health").status_code == 200
        says_so(site, visitor)
        postgres.start()
        eventually(lambda: "convertq migrate" in visitor.get("/ready").text, what="the tables are asked for")
        assert visitor.get("/ready").status_code == 503
        assert error_of(visitor.get("/api/jobs")) == (503, "UNAVAILABLE")
        migrate(postgres.url())
        eventually(lambda: visitor.get("/ready").status_code == 200, what="ready")
        assert visitor.submit().status_code == 201


def test_a_silent_network_keeps_no_page_waiting_that_needs_no_database(
    web: Web, own_postgres: EmbeddedPostgres
) -> None:
    with TcpProxy(own_postgres.port) as proxy:
        site = web(DATABASE_URL=own_postgres.url().replace(str(own_postgres.port), str(proxy.port)))
        visitor = site.visitor()
        assert visitor.submit().status_code == 201
        proxy.swallow()
        assert error_of(visitor.get("/api/jobs"))[0] == 503
        assert error_of(visitor.get("/api/jobs", timeout=20))[0] == 503  # the next is told at once, or after one try
        assert visitor.get("/health", timeout=20).status_code == 200
        proxy.cut()
        proxy.listen()
        eventually(lambda: visitor.get("/api/jobs").status_code == 200, what="back")


def test_tables_that_are_taken_away_are_said_and_not_a_bug(site: Site, conn: Conn) -> None:
    visitor = site.visitor()
    visitor.submitted()
    conn.execute("ALTER TABLE jobs RENAME TO elsewhere")
    assert error_of(visitor.get("/api/jobs"))[0] == 503
    conn.execute("ALTER TABLE elsewhere RENAME TO jobs")
    eventually(lambda: visitor.get("/api/jobs").status_code == 200, what="back")


def test_a_standby_that_takes_no_writes_is_still_read(web: Web) -> None:
    with DemotedPostgres(port=0) as postgres:
        migrate(postgres.url())
        postgres.demote()
        site = web(DATABASE_URL=postgres.url())
        visitor = site.visitor()
        assert visitor.get("/api/jobs").status_code == 200
        assert error_of(visitor.submit())[0] == 503
        assert visitor.get("/api/jobs").status_code == 200
        assert site.process.events("web_error") == []
        site.process.stop()


SESSIONS = """
SELECT count(*) AS number, count(*) FILTER (WHERE %s AND pg_terminate_backend(pid, 5000)) AS ended
  FROM pg_stat_activity WHERE application_name = 'convertq:web' AND datname = current_database()
"""


def test_connections_that_are_ended_behind_its_back_are_replaced_unseen(site: Site, conn: Conn) -> None:
    visitor = site.visitor()
    visitor.submitted()
    assert one(conn, SESSIONS, True)["ended"] >= 1
    assert visitor.get("/api/jobs").status_code == 200


def test_it_keeps_few_connections(site: Site, conn: Conn) -> None:
    visitors = [site.visitor() for _ in range(30)]

    def ask(visitor: Visitor) -> int:
        return visitor.get("/api/jobs").status_code

    assert together(*[partial(ask, visitor) for visitor in visitors]) == [200] * 30
    assert 1 <= one(conn, SESSIONS, False)["number"] <= 8


def test_a_table_that_somebody_locks_delays_its_requests_alone(site: Site, database_url: str) -> None:
    """All connections wait for the lock. A request that finds none free is refused; the database is not called lost."""
    visitors = [site.visitor() for _ in range(12)]
    for visitor in visitors:
        visitor.get("/api/jobs")
    with psycopg.connect(database_url) as locked:
        locked.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        answers = together(*[partial(visitor.get, "/api/jobs") for visitor in visitors])
        assert {answer.status_code for answer in answers if isinstance(answer, Response)} == {503}
        assert visitors[0].get("/health").status_code == 200
    assert visitors[0].get("/api/jobs").status_code == 200
    assert site.process.events("db_down") == []
