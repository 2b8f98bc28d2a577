"""The operator's routes: they are there only with a token, and do and say what the commands do and say."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.conftest import Web
from tests.integration.conftest import Place
from tests.jobs import Conn, expire_lease, fail, insert_job, one, register_server, status_of
from tests.processes import run as run_convertq
from tests.waiting import eventually
from tests.web_client import OPERATOR, PDF, TOKEN, Site, Visitor, error_of

AN_ID = str(UUID(int=1))
ONE_QUEUED = {"queued": 1, "skipped": 0, "left": 0, "message": "1 job queued again"}
#: keys whose values change with time
MOVING = {"now", "heartbeat_seconds", "up_seconds", "oldest_queued_seconds", "seconds", "lease_seconds"}


def printed(place: Place, *arguments: str) -> list[Any]:
    done = run_convertq(*arguments, "--json", environment=place.environment)
    assert done.returncode == 0, done.stderr
    return [still(json.loads(line)) for line in done.stdout.splitlines()]


def still(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: still(each) for name, each in value.items() if name not in MOVING}
    return [still(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module", autouse=True)
def jobs(place: Place) -> dict[str, UUID]:
    register_server(place.conn)
    visitor = place.site.visitor()
    made = {name: visitor.submitted(PDF + name.encode()) for name in ("running", "failed", "dead", "queued")}
    assert fail(place.conn, place.claim(made["failed"]))
    assert fail(place.conn, place.claim(made["dead"]), dead_letter=True)
    place.claim(made["running"])
    return made


@pytest.fixture(autouse=True)
def heartbeat(place: Place) -> None:
    """Nobody else sends one: on a busy machine the tests of this file take longer than the timeout."""
    place.conn.execute("UPDATE servers SET last_heartbeat_at = now()")


def test_stats_servers_jobs_and_the_breaker_are_what_the_commands_print(place: Place, operator: Visitor) -> None:
    assert [still(operator.get("/api/admin/stats").json())] == printed(place, "stats")
    assert still(operator.get("/api/admin/servers").json()["servers"]) == printed(place, "servers")
    assert still(operator.get("/api/admin/jobs").json()["jobs"]) == printed(place, "list")
    assert [still(operator.get("/api/admin/breaker").json())] == printed(place, "breaker")


def test_the_dashboard_has_the_figures_of_stats_and_the_servers_in_words(
    operator: Visitor, jobs: dict[str, UUID]
) -> None:
    shown = operator.get("/api/admin/dashboard").json()
    assert still(shown["stats"]) == still(operator.get("/api/admin/stats").json())
    assert (shown["breaker"]["word"], shown["breaker"]["can_close"]) == ("closed: jobs go through", False)
    workers = [worker for server in shown["servers"]["rows"] for worker in server["workers"]]
    assert str(jobs["running"]) in [worker["job_id"] for worker in workers]
    assert shown["servers"]["summary"].startswith("1 of ")


def test_the_metrics_are_what_the_command_prints(place: Place, operator: Visitor) -> None:
    printed = run_convertq("metrics", environment=place.environment).stdout
    answer = operator.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")

    def steady(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith("convertq_oldest_queued_seconds")]

    assert steady(answer.text) == steady(printed)


def test_jobs_are_found_by_status_code_and_owner_page_by_page(operator: Visitor, jobs: dict[str, UUID]) -> None:
    def found(**asked: str) -> list[str]:
        return [job["id"] for job in operator.get("/api/admin/jobs", params=asked).json()["jobs"]]

    assert found(status="failed") == [str(jobs["dead"]), str(jobs["failed"])]
    assert found(code="GW_4XX", status="") == [str(jobs["dead"]), str(jobs["failed"])]
    assert found(owner="nobody") == []
    assert found(dead="true") == found(dead="true", status="failed") == [str(jobs["dead"])]
    assert found(dead="true", status="queued") == []
    assert found(dead="false") == found(dead="") == found()
    first = operator.get("/api/admin/jobs?limit=3").json()
    rest = operator.get("/api/admin/jobs", params={"before": first["next"]}).json()
    assert len(first["jobs"]) == 3
    assert [job["id"] for job in first["jobs"] + rest["jobs"]] == found()
    assert rest["next"] is None
    for wrong in ("status=x", "code=x", "dead=x", "limit=0", "before=x", "owner=a%00b"):
        assert error_of(operator.get(f"/api/admin/jobs?{wrong}"))[0] == 400
    assert operator.get(f"/api/admin/jobs?before={uuid4()}").status_code == 404


def test_those_given_up_are_found_among_any_number_of_others(site: Site, conn: Conn) -> None:
    """The newest thousands failed for good at their first attempt."""
    conn.execute(
        "INSERT INTO jobs (owner_session_id, bytes, sha256, status, created_at, failed_at, error_code, dead_letter)"
        " SELECT 'one', 1, lpad(n::text, 64, '0'), 'failed', now() - n * interval '1 s', now(), 'UNKNOWN', n > 2998"
        "   FROM generate_series(1, 3000) AS n"
    )
    for asked in ({}, {"owner": "one"}, {"code": "UNKNOWN"}):
        answer = site.operator().get("/api/admin/jobs", params={"dead": "true", "limit": "5", **asked}).json()
        assert ([job["dead_letter"] for job in answer["jobs"]], answer["next"]) == ([True, True], None)


def test_the_history_has_a_row_for_every_minute(operator: Visitor) -> None:
    minutes = operator.get("/api/admin/history?minutes=30").json()["minutes"]
    assert len(minutes) == 30
    assert sum(minute["failed"] for minute in minutes) == 2
    assert error_of(operator.get("/api/admin/history?minutes=0"))[0] == 400


def test_the_scale_says_how_many_workers_are_wanted_and_why(operator: Visitor) -> None:
    scale = operator.get("/api/admin/scale").json()
    assert list(scale) == ["wanted_workers", "running_workers", "queued", "reason"]
    assert scale["wanted_workers"] >= 1
    assert scale["reason"].endswith(f"{scale['queued']} queued within 60 s")


def test_the_breaker_is_opened_and_closed_by_hand(place: Place, operator: Visitor) -> None:
    opened = operator.post("/api/admin/breaker/open").json()
    assert (opened["state"], opened["by_hand"], opened["changed"]) == ("open", True, True)
    assert operator.post("/api/admin/breaker/open").json()["changed"] is False
    assert place.site.visitor().get("/api/status").json()["breaker"] == "open"
    closed = operator.post("/api/admin/breaker/close").json()
    assert (closed["state"], closed["changed"]) == ("closed", True)
    assert operator.post("/api/admin/breaker/toggle").status_code == 404


def test_jobs_of_lost_workers_are_reclaimed(place: Place, operator: Visitor) -> None:
    job = place.claim(place.site.visitor().submitted(PDF + uuid4().hex.encode()))
    expire_lease(place.conn, job)
    assert operator.post("/api/admin/reclaim").json() == {
        "reclaimed": 1, "given_up": 0, "message": "1 job queued again, 0 given up"
    }  # fmt: skip
    assert status_of(place.conn, job.id) == "queued"
    place.conn.execute("UPDATE jobs SET priority = -1000 WHERE id = %s", [job.id])


def failed_job(place: Place, **options: Any) -> UUID:
    job_id = place.site.visitor().submitted(PDF + uuid4().hex.encode())
    assert fail(place.conn, place.claim(job_id), **options)
    return job_id


def test_failed_jobs_are_retried_by_id(place: Place, operator: Visitor) -> None:
    first, second = failed_job(place), failed_job(place)
    gone = insert_job(place.conn, "failed")
    ids = [str(first), str(second), str(first), str(gone), str(uuid4())]
    answer = operator.post("/api/admin/retry-failed", json={"ids": ids}).json()
    why = "no longer failed, source gone, or another job must be complete first"
    assert answer == {"queued": 2, "skipped": 2, "left": 0, "message": f"2 jobs queued again, 2 left: {why}"}
    assert (status_of(place.conn, first), status_of(place.conn, second)) == ("queued", "queued")


def test_failed_jobs_are_retried_in_bulk(place: Place, operator: Visitor) -> None:
    plain, dead = failed_job(place), failed_job(place, dead_letter=True)
    owner = one(place.conn, "SELECT owner_session_id AS owner FROM jobs WHERE id = %s", plain)["owner"]
    chosen = operator.post("/api/admin/retry-failed", json={"owner": owner, "code": "GW_4XX"})
    assert chosen.json() == ONE_QUEUED
    assert status_of(place.conn, dead) == "failed"
    assert operator.post("/api/admin/retry-failed", json={"dead": True}).json()["queued"] == 2
    assert status_of(place.conn, dead) == "queued"
    everything = operator.post("/api/admin/retry-failed").json()  # without a word: all of them
    assert everything["queued"] == 1  # what is left of the fixture's
    assert operator.post("/api/admin/retry-failed", json={}).json()["queued"] == 0


@pytest.mark.parametrize(
    "wrong",
    [[], "x", {"ids": []}, {"ids": ["x"]}, {"ids": [1]}, {"ids": None}, {"code": "x"}, {"code": None}, {"owner": None},
     {"dead": "yes"}, {"owner": 1},
     {"owner": "a\0b"}, {"owner": "\ud800"}, {"id": []}, {"ids": [AN_ID], "dead": True}, {"ids": [AN_ID] * 1001}],
    ids=lambda wrong: str(wrong)[:30],
)  # fmt: skip
def test_a_retry_that_cannot_be_understood_changes_nothing(place: Place, operator: Visitor, wrong: Any) -> None:
    job_id = failed_job(place)
    assert error_of(operator.post("/api/admin/retry-failed", json=wrong)) == (400, "BAD_REQUEST")
    assert status_of(place.conn, job_id) == "failed"


def test_ids_that_come_in_chunks_are_not_taken_for_all(place: Place, operator: Visitor) -> None:
    wanted, other = failed_job(place), failed_job(place)
    body = iter([b'{"ids": ["', str(wanted).encode(), b'"]}'])
    answer = operator.post("/api/admin/retry-failed", data=body, headers={"Content-Type": "application/json"})
    assert answer.json() == ONE_QUEUED
    assert status_of(place.conn, other) == "failed"


def test_a_body_that_is_no_json_or_too_long_is_refused(operator: Visitor) -> None:
    route = "/api/admin/retry-failed"
    assert error_of(operator.post(route, data=b"{", headers={"Content-Type": "application/json"}))[0] == 400
    assert error_of(operator.post(route, data=b"ids=1"))[0] == 400
    deep = b'{"ids": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert error_of(operator.post(route, data=deep, headers={"Content-Type": "application/json"}))[0] == 400
    long = b"[" + b" " * 2_000_000 + b"]"
    assert error_of(operator.post(route, data=long, headers={"Content-Type": "application/json"}))[0] == 413


def test_without_a_token_the_routes_do_not_exist(web: Web) -> None:
    visitor = web(ADMIN_TOKEN=None).visitor(**OPERATOR)
    for method, route in (
        ("GET", "/api/admin/stats"), ("GET", "/api/admin/jobs"), ("GET", "/metrics"), ("POST", "/api/admin/reclaim"),
        ("GET", "/admin"),
    ):  # fmt: skip
        answer = visitor.request(method, route)
        assert answer.status_code == 404, route
    assert error_of(visitor.get("/api/admin/stats")) == error_of(visitor.get("/api/nothing"))
    for route in ("/api/admin/reclaim", "/api/nothing"):  # for every client, from any site
        assert visitor.post(route, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 404


def test_work_that_takes_long_is_not_taken_for_a_slow_client(short_timeouts: Place) -> None:
    """A bulk retry of very many jobs; here its row is locked, and a client has two seconds."""
    job_id = short_timeouts.site.visitor().submitted()
    assert fail(short_timeouts.conn, short_timeouts.claim(job_id))
    with psycopg.connect(short_timeouts.environment["DATABASE_URL"]) as locked, ThreadPoolExecutor() as aside:
        locked.execute("SELECT FROM jobs FOR UPDATE")
        began = time.monotonic()
        asked = aside.submit(
            short_timeouts.site.operator().post, "/api/admin/retry-failed", json={"ids": [str(job_id)]}
        )
        eventually(lambda: time.monotonic() - began > 4)
        locked.rollback()
        assert asked.result().json() == ONE_QUEUED


def test_the_token_is_asked_for_before_all_else(place: Place) -> None:
    other_site = place.site.visitor(**{"Sec-Fetch-Site": "cross-site"})
    assert other_site.post("/api/admin/reclaim").status_code == 401
    with_token = place.site.visitor(**{"Sec-Fetch-Site": "cross-site"}, **OPERATOR)
    assert error_of(with_token.post("/api/admin/reclaim")) == (403, "FORBIDDEN")


def test_neither_the_token_nor_a_session_is_ever_logged(place: Place, operator: Visitor) -> None:
    visitor = place.site.visitor()
    owner = visitor.owner
    visitor.submit(PDF + b"x")
    visitor.get(f"/api/jobs?before={owner}")
    operator.get("/api/admin/stats?token=in-the-query")
    operator.get("/api/admin/nothing")
    place.site.visitor(Authorization=f"Bearer {TOKEN}x").get("/api/admin/stats")
    place.site.process.wait_for_event("request", path="/api/admin/stats", http_status=401)
    log = place.site.process.tail(10_000)
    assert '"path": "/api/admin/stats"' in log
    for secret in (TOKEN, owner, "in-the-query"):
        assert secret not in log
