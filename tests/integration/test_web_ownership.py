"""Who may see and do what: sessions, the matrix of two visitors over every route, and requests of other sites.

Routes are taken from the application itself: a new one cannot be forgotten.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import psycopg
import pytest
import requests
from convertq.web.app import create_app
from convertq.web.web_log import make_log

from tests.conftest import Web
from tests.integration.conftest import Place
from tests.jobs import config, everything, fail, insert_job, queue
from tests.web_client import OPERATOR, PDF, SAME_ORIGIN, Site, Visitor, error_of

A_V4 = "0b0c8a52-7f0e-4d43-9d33-0e8b3c0f6a11"
#: what would tell of a version, a size or a range
CURIOUS = {
    "Range": "bytes=0-0",
    "If-None-Match": "*",
    "If-Match": '"x"',
    "If-Modified-Since": "Tue, 01 Jan 2030 00:00:00 GMT",
}
STATES = ("uploaded", "queued", "processing", "complete", "failed")


class Route(NamedTuple):
    method: str
    rule: str

    def url(self, job_id: UUID | str = "", action: str = "open", filename: str = "base.css") -> str:
        path = self.rule.replace("<uuid:job_id>", str(job_id)).replace("<any(open, close):action>", action)
        path = path.replace("<path:filename>", filename)
        assert "<" not in path, f"{path}: the test does not know how to ask for it"
        return path


def routes() -> Iterator[Route]:
    settings = config()
    for rule in create_app(settings, make_log(settings)).url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"OPTIONS"}):
            yield Route(method, rule.rule)


ROUTES = list(routes())
OF_A_JOB = [route for route in ROUTES if "<uuid:job_id>" in route.rule]
CHANGING = [route for route in ROUTES if route.method not in ("GET", "HEAD")]
OF_OPERATORS = [route for route in ROUTES if route.rule.startswith(("/api/admin", "/metrics"))]


def named(route: Route) -> str:
    return " ".join(route)


@pytest.fixture(scope="module")
def jobs(place: Place) -> list[UUID]:
    """A stranger's, one in each state, with all that can hang on a job; one with a long history."""
    stranger = place.site.visitor()
    made = [stranger.submitted(PDF + uuid4().hex.encode()) for _ in range(4)]
    assert fail(place.conn, place.claim(made[0]))
    place.complete(made[1])
    assert queue(place.conn).report_progress(place.claim(made[2]), "reading", 1, 1, 2)
    place.conn.execute("UPDATE jobs SET priority = -1000 WHERE id = %s", [made[3]])
    place.conn.execute(
        "INSERT INTO job_events (job_id, event_type, meta) SELECT %s, 'retry', '{}' FROM generate_series(1, 3000)",
        [made[3]],
    )
    return [*made, insert_job(place.conn, "uploaded", owner_session_id=stranger.owner)]


# -- two visitors --


def test_there_are_routes_of_a_job() -> None:
    assert {route.rule.rpartition("/")[2] for route in OF_A_JOB} >= {"events", "progress", "download", "retry"}


@pytest.mark.parametrize("route", OF_A_JOB, ids=named)
def test_a_job_of_another_visitor_is_forbidden_in_the_same_words_whatever_it_is(
    place: Place, visitor: Visitor, jobs: list[UUID], route: Route
) -> None:
    assert visitor.owner  # its cookie is set already
    before = everything(place.conn)
    answers = [visitor.request(route.method, route.url(job_id), headers=CURIOUS) for job_id in jobs]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.content for answer in answers}) == 1
    headers = [{name: value for name, value in answer.headers.items() if name != "Date"} for answer in answers]
    assert headers == [headers[0]] * len(headers)
    assert not {"ETag", "Last-Modified", "Content-Range", "Content-Disposition", "Set-Cookie"} & headers[0].keys()
    if route.method != "HEAD" and route.rule.startswith("/api"):
        assert error_of(answers[0]) == (403, "FORBIDDEN")
    assert everything(place.conn) == before


@pytest.mark.parametrize("route", OF_A_JOB, ids=named)
def test_without_a_cookie_and_with_an_operators_token_it_is_forbidden_too(
    place: Place, jobs: list[UUID], route: Route
) -> None:
    for headers in ({}, OPERATOR, {"Cookie": "owner_session_id=cli"}, {"Cookie": "owner_session_id="}):
        answer = requests.request(
            route.method,
            place.site.url + route.url(jobs[0]),
            headers={**SAME_ORIGIN, **headers},
            timeout=60,
        )
        assert answer.status_code == 403


def test_the_list_of_one_visitor_has_nothing_of_another(visitor: Visitor, jobs: list[UUID]) -> None:
    for status in ("", *STATES):
        answer = visitor.get(f"/api/jobs?status={status}").json()
        assert (answer["jobs"], answer["active"]) == ([], 0)
    assert all(str(job_id) not in visitor.get("/").text for job_id in jobs)


@pytest.mark.parametrize("route", OF_A_JOB, ids=named)
def test_of_a_job_of_another_visitor_nothing_is_looked_at_but_whose_it_is(
    place: Place, visitor: Visitor, jobs: list[UUID], route: Route
) -> None:
    """The work is the same for every job, and so its time tells nothing: all else is locked away meanwhile."""
    visitor.get("/api/status")  # a connection is open, and its check of the schema is done
    with psycopg.connect(place.environment["DATABASE_URL"]) as locked:
        locked.execute("LOCK TABLE job_events, job_progress, circuit_breaker, servers IN ACCESS EXCLUSIVE MODE")
        locked.execute("SELECT FROM jobs FOR UPDATE")
        for job_id in jobs:
            assert visitor.request(route.method, route.url(job_id), timeout=60).status_code == 403


# -- a session --


def test_a_visitor_gets_one_random_cookie_and_keeps_it(place: Place) -> None:
    first = requests.get(f"{place.site.url}/api/jobs", timeout=60)
    cookie = first.headers["Set-Cookie"]
    value = first.cookies["owner_session_id"]
    assert UUID(value).version == 4
    for part in ("HttpOnly", "SameSite=Lax", "Path=/"):
        assert part in cookie
    assert "Secure" not in cookie
    again = requests.get(f"{place.site.url}/api/jobs", cookies={"owner_session_id": value}, timeout=60)
    assert "Set-Cookie" not in again.headers


def test_behind_tls_the_cookie_is_secure(place: Place) -> None:
    answer = requests.get(f"{place.site.url}/", headers={"X-Forwarded-Proto": "https"}, timeout=60)
    assert "Secure" in answer.headers["Set-Cookie"]


def test_of_a_proxy_elsewhere_tls_is_believed_only_where_it_is_named(web: Web) -> None:
    """127.0.0.2 stands for another host."""

    def cookie(site: Site) -> str:
        elsewhere = http.client.HTTPConnection("127.0.0.1", urlsplit(site.url).port, 10, ("127.0.0.2", 0))
        elsewhere.request("GET", "/", headers={"X-Forwarded-Proto": "https"})
        return elsewhere.getresponse().headers["Set-Cookie"]

    assert "Secure" not in cookie(web())
    assert "Secure" in cookie(web(FORWARDED_ALLOW_IPS="127.0.0.2"))


@pytest.mark.parametrize(
    "made_up", ["cli", "", "../x", "x" * 5000, str(UUID(int=1)), A_V4.upper(), f"{{{A_V4}}}", A_V4.replace("-", "")]
)
def test_a_cookie_that_was_not_made_here_is_replaced(place: Place, made_up: str) -> None:
    job_id = insert_job(place.conn, owner_session_id=made_up)
    answer = requests.get(f"{place.site.url}/api/jobs", headers={"Cookie": f"owner_session_id={made_up}"}, timeout=60)
    assert UUID(answer.cookies["owner_session_id"]).version == 4
    assert answer.json()["jobs"] == []
    place.conn.execute("UPDATE jobs SET owner_session_id = NULL WHERE id = %s", [job_id])


def test_who_only_probes_gets_no_cookie(place: Place) -> None:
    for route in ("/health", "/ready", "/api/openapi.json", "/static/base.css"):
        assert "Set-Cookie" not in requests.get(place.site.url + route, timeout=60).headers


# -- other sites --


OTHERS: tuple[dict[str, str], ...] = (
    {},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    {"Origin": "http://[", "Referer": "http://127.0.0.1/"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1"},
    {"Referer": "{site}/"},
    {"Origin": "http://sub.{host}"},
    {"Origin": "ftp://{host}"},
    {"Origin": "//{host}"},
    {"Origin": "http://{host}/"},
    {"Origin": "http://{host}", "X-Forwarded-Proto": "https"},
    {"Origin": "http://{host}", "Host": "convert.example"},
)


@pytest.mark.parametrize("route", CHANGING, ids=named)
def test_a_change_that_another_site_asks_for_is_refused(place: Place, jobs: list[UUID], route: Route) -> None:
    before = everything(place.conn)
    host = urlsplit(place.site.url).netloc
    for headers in OTHERS:
        sent = {**OPERATOR, **{name: value.format(site=place.site.url, host=host) for name, value in headers.items()}}
        answer = requests.request(route.method, place.site.url + route.url(jobs[0]), headers=sent, timeout=60)
        assert answer.status_code == 403, headers
    assert everything(place.conn) == before


@pytest.mark.parametrize("said", ["Origin", "Sec-Fetch-Site", "both"])
def test_a_change_that_our_own_page_asks_for_is_made(place: Place, said: str) -> None:
    both = {"Origin": place.site.url, "Sec-Fetch-Site": "same-origin"}
    headers = both if said == "both" else {said: both[said]}
    file = {"file": ("a.pdf", PDF + uuid4().hex.encode())}
    assert requests.post(f"{place.site.url}/api/jobs", files=file, headers=headers, timeout=60).status_code == 201


def test_behind_a_proxy_the_origin_is_that_of_the_browser(place: Place) -> None:
    headers = {"Host": "convert.example", "Origin": "https://convert.example", "X-Forwarded-Proto": "https"}
    file = {"file": ("a.pdf", PDF + uuid4().hex.encode())}
    assert requests.post(f"{place.site.url}/api/jobs", files=file, headers=headers, timeout=60).status_code == 201


# -- every answer --


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_every_answer_keeps_the_browser_from_what_it_need_not_do(place: Place, route: Route) -> None:
    asked = {**SAME_ORIGIN, **OPERATOR}
    answer = requests.request(route.method, place.site.url + route.url(uuid4(), "close"), headers=asked, timeout=60)
    policy = answer.headers["Content-Security-Policy"]
    for directive in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert directive in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.status_code < 500
    if route.rule.startswith(("/api", "/metrics")):
        assert {"no-store", "no-cache"} & set(answer.headers["Cache-Control"].replace(" ", "").split(","))


# -- operators --


@pytest.mark.parametrize("route", OF_OPERATORS, ids=named)
def test_an_operators_route_opens_only_with_the_token(place: Place, route: Route) -> None:
    right = OPERATOR["Authorization"]
    for sent in (
        "",
        "Bearer",
        "Bearer wrong",
        "Basic YTpi",
        f"{right}x",
        right[:-1],
        right.removeprefix("Bearer "),
        "é",
    ):
        headers: dict[str, str | bytes] = {**SAME_ORIGIN, "Authorization": sent.encode()}
        answer = requests.request(route.method, place.site.url + route.url(), headers=headers, timeout=60)
        assert answer.status_code == 401, sent
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
