"""What doctor says of a gateway, for every answer and every error that `requests` can report."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
import responses
from convertq.queue.config import read_config
from convertq.queue.doctor.finding import CheckContext, Finding, State
from convertq.queue.doctor.host import check_gateway
from convertq.queue.store import open_store
from urllib3.exceptions import ProtocolError

SECRET = "s3cret"
BASE = f"https://operator:{SECRET}@gateway.example:8443"
CONFIG = read_config({"DATABASE_URL": "postgresql://host/db", "GATEWAY_URL": BASE})


@pytest.fixture
def gateway() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock() as mocked:
        yield mocked


def found() -> Finding:
    [finding] = check_gateway(CheckContext(CONFIG, open_store(CONFIG)))
    return finding


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (200, State.OK),
        (204, State.OK),
        (404, State.OK),
        (405, State.OK),
        (301, State.BAD),
        (401, State.BAD),
        (503, State.BAD),
    ],
)
def test_every_answer_has_its_finding(gateway: responses.RequestsMock, status: int, state: State) -> None:
    gateway.get(f"{BASE}/health", status=status)
    assert found().state is state


def test_a_redirect_is_not_followed(gateway: responses.RequestsMock) -> None:
    gateway.get(f"{BASE}/health", status=302, headers={"Location": "https://elsewhere.example/"})
    assert "/health answers 302" in found().what
    assert len(gateway.calls) == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (requests.exceptions.SSLError(f"certificate of operator:{SECRET}"), "TLS or its certificate was refused"),
        (requests.ConnectTimeout(f"https://operator:{SECRET}@gateway"), "nothing within 5 s"),
        (requests.ReadTimeout(f"https://operator:{SECRET}@gateway"), "nothing within 5 s"),
        (requests.ConnectionError(ProtocolError(SECRET)), "not an HTTP answer"),
        (requests.ConnectionError(f"refused operator:{SECRET}"), "it cannot be reached"),
        (requests.exceptions.InvalidSchema(SECRET), "it cannot be reached"),
    ],
)
def test_no_error_shows_the_credentials(
    gateway: responses.RequestsMock, error: requests.RequestException, words: str
) -> None:
    gateway.get(f"{BASE}/health", body=error)
    finding = found()
    assert finding.state is State.BAD
    assert words in finding.what
    assert SECRET not in f"{finding.what} {finding.remedy}"
