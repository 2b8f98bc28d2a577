"""The connection that a worker keeps: it costs no job an attempt, and mixes no answers."""

from __future__ import annotations

import io
from uuid import UUID, uuid4

import pytest
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.worker.gateway.client import GatewayCall, GatewayClient
from convertq.worker.gateway.progress import Progress
from urllib3.util.wait import wait_for_read

from tests import gateway_behaviours as answers
from tests.documents import source_of
from tests.gateway_behaviours import Behaviour, Exchange
from tests.jobs import PDF, client_of, config
from tests.stand_in_gateway import StandInGateway


@pytest.fixture
def client(gateway: StandInGateway) -> GatewayClient:
    return client_of(config(GATEWAY_URL=gateway.url, GATEWAY_TIMEOUT_MS=5000))


def call(client: GatewayClient, pdf: bytes = PDF) -> bytes:
    job = ClaimedJob(uuid4(), "h:1:a/1", 1, "m", True, len(pdf), is_trial=False, queued_ms=0)
    sink = io.BytesIO()
    GatewayCall(client, job, Progress()).run(source_of(pdf), sink)
    assert str(job.id).encode() in sink.getvalue(), "the answer is that of this job"
    return sink.getvalue()


def connections(gateway: StandInGateway) -> list[int]:
    return [request.connection for request in gateway.requests]


def test_calls_that_follow_at_once_share_a_connection(gateway: StandInGateway, client: GatewayClient) -> None:
    for _ in range(3):
        call(client)
    assert len(set(connections(gateway))) == 1


def test_each_upload_arrives_whole_over_a_kept_connection(gateway: StandInGateway, client: GatewayClient) -> None:
    sizes = [1, 70_000, 65_536, 131_072, 3]
    for size in sizes:
        call(client, b"x" * size)
    assert [request.upload.file_size for request in gateway.requests] == sizes
    assert len(set(connections(gateway))) == 1


def test_a_worker_that_falls_idle_gives_its_connection_back(gateway: StandInGateway, client: GatewayClient) -> None:
    call(client)
    client.close_connection()
    call(client)
    assert len(set(connections(gateway))) == 2


def test_a_connection_is_not_used_after_a_while(
    gateway: StandInGateway, client: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(client)
    monkeypatch.setattr(client.connection, "keep_seconds", -1.0)
    call(client)
    assert len(set(connections(gateway))) == 2


def test_a_gateway_that_was_restarted_in_between_costs_nothing(gateway: StandInGateway, client: GatewayClient) -> None:
    call(client)
    gateway.stop()
    gateway.start()
    call(client)
    assert len(gateway.requests) == 2


def wait_for_more(client: GatewayClient) -> None:
    """Bytes, or the end: a worker's next call is at least two round trips to the database later."""
    connection = client.connection._connection
    assert connection is not None
    assert connection.sock is not None
    assert wait_for_read(connection.sock, 5)


def hangs_up_after(behaviour: Behaviour) -> Behaviour:
    def act(exchange: Exchange) -> None:
        behaviour.act(exchange)
        exchange.hang_up()

    return Behaviour(f"{behaviour.name}, then hangs up", act)


def test_a_gateway_that_hangs_up_without_a_word_costs_nothing(gateway: StandInGateway, client: GatewayClient) -> None:
    gateway.default = hangs_up_after(answers.ok())
    for _ in range(3):
        call(client)
        wait_for_more(client)
    assert len(gateway.requests) == 3


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (answers.status(503), Code.GW_5XX),
        (answers.status(400), Code.GW_4XX),
        (answers.document(b"<a>"), Code.GW_5XX),
        (answers.document(b"no", "text/html"), Code.GW_5XX),
    ],
    ids=["503", "400", "malformed", "wrong type"],
)
def test_after_a_refused_answer_the_next_is_the_next_jobs_own(
    gateway: StandInGateway, client: GatewayClient, behaviour: Behaviour, code: Code
) -> None:
    call(client)
    gateway.script(behaviour)
    with pytest.raises(Failure) as raised:
        call(client)
    assert raised.value.code is code
    call(client)
    assert len(gateway.requests) == 3


def test_bytes_behind_an_answer_are_never_taken_for_the_next_one(
    gateway: StandInGateway, client: GatewayClient
) -> None:
    def answer(body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def act(exchange: Exchange) -> None:
        exchange.send(answer(exchange.xml) + answer(b"<forged/>"))

    gateway.script(Behaviour("says more than it was asked", act))
    call(client)
    call(client)


ANSWERS = [
    answers.ok(), answers.status(503, {"Retry-After": "7"}), answers.status(404), answers.status(204),
    answers.redirect(), answers.empty(), answers.html(), answers.untyped(), answers.malformed(),
    answers.doctype(), answers.gzipped(), answers.truncated(), answers.truncated_chunked(),
    answers.reset_before_headers(), answers.reset_after_headers(), answers.early(answers.status(413)),
    answers.document(b"<a/>", "application/xml\x00"), answers.big(1), answers.silent(), hangs_up_after(answers.ok()),
]  # fmt: skip


@pytest.mark.parametrize("behaviour", ANSWERS, ids=lambda behaviour: behaviour.name)
def test_an_answer_over_a_kept_connection_is_what_it_is_over_a_new_one(
    gateway: StandInGateway, behaviour: Behaviour
) -> None:
    """Only the one that never answers is waited for as long as the timeout."""
    heard, timeout_ms = [], 2000 if behaviour.name == "silent" else 60_000
    for calls_before in (0, 1):
        client = client_of(config(GATEWAY_URL=gateway.url, GATEWAY_TIMEOUT_MS=timeout_ms))
        for _ in range(calls_before):
            call(client)
        gateway.script(behaviour)
        heard.append(what_comes_of(client))
    assert heard[0] == heard[1]
    _, before, kept = connections(gateway)
    assert before == kept


def what_comes_of(client: GatewayClient) -> object:
    job = ClaimedJob(UUID(int=1), "h:1:a/1", 1, "m", True, len(PDF), is_trial=False, queued_ms=0)
    sink = io.BytesIO()
    try:
        GatewayCall(client, job, Progress()).run(source_of(PDF + bytes(8 << 20)), sink)
    except Failure as failure:
        return failure.code, failure.message, failure.gateway_status, failure.gateway_ok, failure.retry_after
    return sink.getvalue()


def test_what_is_sent_over_a_kept_connection_is_what_is_sent_over_a_new_one(gateway: StandInGateway) -> None:
    client = client_of(config(GATEWAY_URL=gateway.url.replace("//", "//user:secret@")))
    for _ in range(2):
        what_comes_of(client)
    first, next_one = gateway.requests
    assert first.connection == next_one.connection
    assert sorted(first.headers.items()) == sorted(next_one.headers.items())
    assert "authorization" in {name.lower() for name, _ in first.headers.items()}


def test_a_proxy_of_the_environment_gets_every_call_with_its_credentials(
    gateway: StandInGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", gateway.url.replace("//", "//user:secret@"))
    client = client_of(config(GATEWAY_URL="http://gateway.invalid"))
    for _ in range(2):
        call(client)
    assert [request.headers["host"] for request in gateway.requests] == ["gateway.invalid"] * 2
    assert all(request.headers["proxy-authorization"] for request in gateway.requests)


def test_an_aborted_call_leaves_no_connection_behind(gateway: StandInGateway, client: GatewayClient) -> None:
    call(client)
    gateway.script(answers.truncated())
    with pytest.raises(Failure):
        call(client)
    call(client)
    first, cut, after = connections(gateway)
    assert first == cut
    assert after != cut
