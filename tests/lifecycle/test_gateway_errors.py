"""Whatever the gateway, the network or the disk does wrong has its code, and is retried or not, as the table says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from convertq.embedded.postgres import free_port

from tests import gateway_behaviours as answer
from tests.conftest import Supervisor
from tests.documents import Documents
from tests.gateway_behaviours import Behaviour, Exchange
from tests.lifecycle.conftest import Site, wait_until_past
from tests.stand_in_gateway import StandInGateway
from tests.waiting import Row

SITE = {
    "WORKER_CONCURRENCY": "8",
    "WORKER_POLL_INTERVAL_MS": "20",
    "GATEWAY_TIMEOUT_MS": "5000",
    "RETRY_MAX_ATTEMPTS": "3",
    "RETRY_BASE_DELAY_MS": "1",
    "RETRY_JITTER_MAX_MS": "1",
}
ATTEMPTS = 3


@dataclass(frozen=True)
class Case:
    behaviour: Behaviour
    code: str

    @property
    def retried(self) -> bool:
        return self.code != "GW_4XX"


@dataclass(frozen=True)
class RetryAfter:
    behaviour: Behaviour
    at_least: float
    at_most: float


def xml(text: str) -> Behaviour:
    return answer.document(text.encode())


CASES = {
    **{f"{code}": Case(answer.status(code), "GW_4XX") for code in (300, 301, 302, 303, 304, 307, 308)},
    **{f"{code}": Case(answer.status(code), "GW_4XX") for code in (400, 401, 403, 404, 405, 406, 413, 415, 422)},
    "redirect with a location": Case(answer.redirect(), "GW_4XX"),
    "early 413": Case(answer.early(answer.status(413)), "GW_4XX"),
    "4xx with XML": Case(answer.status(418, answer.XML_TYPE, b"<teapot/>"), "GW_4XX"),
    **{f"{code}": Case(answer.status(code), "GW_5XX") for code in (429, 500, 501, 502, 503, 504, 599)},
    "5xx with XML": Case(answer.status(500, answer.XML_TYPE, b"<error/>"), "GW_5XX"),
    "204": Case(answer.status(204), "GW_5XX"),
    "empty": Case(answer.empty(), "GW_5XX"),
    "truncated": Case(answer.truncated(), "GW_5XX"),
    "truncated chunked": Case(answer.truncated_chunked(), "GW_5XX"),
    "html": Case(answer.html(), "GW_5XX"),
    "json": Case(answer.document(b"{}", "application/json"), "GW_5XX"),
    "xml that says it is text": Case(answer.document(b"<a/>", "text/plain"), "GW_5XX"),
    "malformed": Case(answer.malformed(), "GW_5XX"),
    "white space only": Case(xml("  \n"), "GW_5XX"),
    "two roots": Case(xml("<a/><b/>"), "GW_5XX"),
    "trailing text": Case(xml("<a/>and more"), "GW_5XX"),
    "undeclared entity": Case(xml("<a>&b;</a>"), "GW_5XX"),
    "wrong encoding": Case(answer.document(b"<a>\xff\xfe</a>"), "GW_5XX"),
    "entities": Case(answer.doctype(), "GW_5XX"),
    "external entity": Case(xml('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'), "GW_5XX"),
    "parameter entity": Case(xml('<!DOCTYPE a [<!ENTITY % b "c">]><a/>'), "GW_5XX"),
    "reset before headers": Case(answer.reset_before_headers(), "GW_5XX"),
    "reset after headers": Case(answer.reset_after_headers(), "GW_5XX"),
    "reset before the upload": Case(answer.early(answer.reset_before_headers()), "GW_5XX"),
    "408": Case(answer.status(408), "GW_TIMEOUT"),
    "silent": Case(answer.silent(), "GW_TIMEOUT"),
    "drips headers": Case(answer.drip_headers(0.1), "GW_TIMEOUT"),
    "drips the body": Case(answer.drip_body(0.1), "GW_TIMEOUT"),
}


def retry_after(code: int, value: str) -> Behaviour:
    return answer.status(code, {"Retry-After": value})


def retry_at(code: int, seconds: float) -> Behaviour:
    """With the date at which so many seconds will have passed since the answer."""

    def act(exchange: Exchange) -> None:
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
        exchange.answer(code, {"Retry-After": date}, b"")

    return Behaviour(f"status {code} until a date", act)


WAITS = {
    "429 for seconds": RetryAfter(retry_after(429, "30"), 30, 31),
    "429 until a date": RetryAfter(retry_at(429, 590), 500, 590),
    "429 for an hour": RetryAfter(retry_after(429, "3600"), 599, 601),
    "503 for seconds": RetryAfter(retry_after(503, "45"), 45, 46),
    "503 for a day": RetryAfter(retry_after(503, "86400"), 599, 601),
    "503 until next week": RetryAfter(retry_at(503, 7 * 86400), 599, 601),
    "garbage": RetryAfter(retry_after(429, "soon, perhaps"), 0, 1),
    "negative": RetryAfter(retry_after(429, "-30"), 0, 1),
    "a date in the past": RetryAfter(retry_at(503, -300), 0, 1),
    "nothing": RetryAfter(retry_after(503, ""), 0, 1),
    "a fraction": RetryAfter(retry_after(503, "1e9"), 0, 1),
    "infinite": RetryAfter(retry_after(429, "9" * 400), 599, 601),
    "500, where it means nothing": RetryAfter(retry_after(500, "60"), 0, 1),
}


@pytest.fixture(scope="module")
def jobs(site: Site) -> dict[str, UUID]:
    """All cases at once: each job meets its answer on every attempt."""
    jobs = {}
    answers = {name: case.behaviour for name, case in CASES.items()}
    waits = {name: wait.behaviour for name, wait in WAITS.items()}
    for name, behaviour in [*answers.items(), *waits.items()]:
        jobs[name] = job_id = site.documents.upload()
        site.gateway.script_for(job_id, *[behaviour] * ATTEMPTS)
    for job_id in jobs.values():
        site.documents.insert(job_id)
    return jobs


def assert_fit_for_the_public(message: str) -> None:
    assert message
    assert message.isprintable()
    assert len(message) <= 200
    assert not re.search(r"(?<!\w)/|://", message)
    assert "Traceback" not in message


@pytest.mark.parametrize("name", CASES)
def test_an_answer_has_its_code_and_is_retried_as_the_table_says(site: Site, jobs: dict[str, UUID], name: str) -> None:
    case = CASES[name]
    row = site.documents.wait_for(jobs[name])
    assert (row["status"], row["error_code"]) == ("failed", case.code)
    attempts = ATTEMPTS if case.retried else 1
    assert row["attempt_count"] == attempts
    assert row["dead_letter"] is case.retried
    assert row["retry_after"] is None
    assert len(site.gateway.requests_of(jobs[name])) == attempts
    assert site.documents.story(jobs[name]) == "created queued" + " processing retry" * (attempts - 1) + (
        " processing failed"
    )
    assert_fit_for_the_public(row["error_message"])
    assert not site.documents.result(jobs[name]).exists()


def first_retry(documents: Documents, job_id: UUID) -> tuple[Row, float]:
    """The event, and the seconds from it to the time at which the job is due."""
    event = documents.wait_for_event(job_id, "retry")
    due = datetime.fromisoformat(event["meta"]["retry_after"])
    return event, (due - event["at"]).total_seconds()


@pytest.mark.parametrize("name", WAITS)
def test_retry_after_is_honoured_up_to_ten_minutes(site: Site, jobs: dict[str, UUID], name: str) -> None:
    event, seconds = first_retry(site.documents, jobs[name])
    assert event["meta"]["error_code"] == "GW_5XX"
    assert WAITS[name].at_least - 0.1 <= seconds <= WAITS[name].at_most


def test_the_event_of_a_retry_tells_the_last_error(site: Site, jobs: dict[str, UUID]) -> None:
    event, _ = first_retry(site.documents, jobs["502"])
    assert event["meta"]["gateway_status"] == 502
    assert event["meta"]["error_message"] == "the gateway answered 502 Bad Gateway"
    assert event["meta"]["attempt"] == 1
    assert event["meta"]["duration_ms"] >= 0


def test_no_temp_file_is_left_by_any_failure(site: Site, jobs: dict[str, UUID]) -> None:
    site.documents.wait_for_all([jobs[name] for name in CASES])
    site.documents.wait_until_tidy()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (lambda port: f"http://127.0.0.1:{free_port()}", "refused"),
        (lambda port: "http://nonexistent.invalid", "name"),
        (lambda port: f"https://127.0.0.1:{port}", "secure connection"),
    ],
    ids=["refused", "no such name", "no TLS"],
)
def test_an_unreachable_gateway_is_retried(
    supervisor: Supervisor,
    documents: Documents,
    gateway: StandInGateway,
    url: Callable[[int], str],
    said: str,
) -> None:
    supervisor(GATEWAY_URL=url(gateway.port), RETRY_MAX_ATTEMPTS=2, CIRCUIT_WINDOW=1000)
    job_id = documents.put()
    row = documents.wait_for(job_id)
    assert (row["error_code"], row["dead_letter"], row["attempt_count"]) == ("GW_5XX", True, 2)
    assert said in row["error_message"]
    assert_fit_for_the_public(row["error_message"])


def test_a_gateway_that_comes_back_serves_the_retry(site: Site) -> None:
    job_id = site.documents.upload()
    site.gateway.script_for(job_id, answer.status(503), answer.reset_before_headers())
    site.documents.insert(job_id)
    assert site.documents.wait_for(job_id)["status"] == "complete"
    assert site.documents.row(job_id)["attempt_count"] == 3
    assert site.documents.row(job_id)["error_message"] is None


def plant_nothing(path: Path) -> None:
    """The source is missing."""


def plant_a_directory(path: Path) -> None:
    (path / "kept").mkdir(parents=True)


@pytest.mark.parametrize("plant", [plant_nothing, plant_a_directory])
def test_an_unreadable_source_is_retried_once(site: Site, plant: Callable[[Path], None]) -> None:
    job_id = uuid4()
    plant(site.documents.source(job_id))
    site.documents.insert(job_id)
    assert_given_up_by_the_disk(site, job_id)
    assert site.gateway.requests_of(job_id) == []


def test_a_result_that_cannot_be_put_in_place_is_retried_once(site: Site) -> None:
    job_id = site.documents.upload()
    plant_a_directory(site.documents.result(job_id))
    site.documents.insert(job_id)
    assert_given_up_by_the_disk(site, job_id)


def assert_given_up_by_the_disk(site: Site, job_id: UUID) -> None:
    row = site.documents.wait_for(job_id)
    assert (row["status"], row["error_code"], row["dead_letter"]) == ("failed", "IO_ERROR", True)
    assert row["attempt_count"] == 2
    assert site.documents.story(job_id) == "created queued processing retry processing failed"
    assert_fit_for_the_public(row["error_message"])


@pytest.mark.parametrize("directory", ["uploads", "results"])
def test_a_directory_that_is_gone_holds_the_queue_and_costs_no_attempt(
    supervisor: Supervisor, documents: Documents, directory: str
) -> None:
    process = supervisor()
    job_id = documents.upload()
    gone: Path = getattr(documents, directory)
    gone.rename(gone.with_name("elsewhere"))
    process.wait_for_event("held", count=2)  # by each of the two workers
    documents.insert(job_id)
    wait_until_past(documents, documents.now() + timedelta(seconds=0.5))  # a few polls
    assert documents.row(job_id)["status"] == "queued"
    gone.with_name("elsewhere").rename(gone)
    row = documents.wait_for(job_id)
    assert (row["status"], row["attempt_count"]) == ("complete", 1)


def test_a_disk_with_too_little_space_holds_the_queue(supervisor: Supervisor, documents: Documents) -> None:
    process = supervisor(RESULTS_MIN_FREE_MB=2**31 - 1)
    job_id = documents.put()
    held = process.wait_for_event("held", count=2)
    assert "MB free" in held["reason"]
    wait_until_past(documents, documents.now() + timedelta(seconds=0.5))  # a few polls
    row = documents.row(job_id)
    assert (row["status"], row["attempt_count"]) == ("queued", 0)
