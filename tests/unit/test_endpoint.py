"""The way to a gateway: TLS is verified, proxies of the environment are used, credentials stay."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from convertq.queue.errors import Code, Failure
from convertq.worker.gateway.endpoint import find_endpoint, tls_context

from tests.jobs import client_of, config
from tests.stand_in_gateway import StandInGateway
from tests.unit.test_kept_connection import call

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on PATH")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-out", str(paths[0]), "-keyout", str(paths[1])],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return paths


@contextmanager
def tls_in_front_of(gateway: StandInGateway, certificate: tuple[Path, Path]) -> Iterator[int]:
    """A port that speaks TLS and passes everything on to the gateway."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with relay(lambda client: context.wrap_socket(client, server_side=True), gateway.port) as port:
        yield port


@contextmanager
def relay(greet, port: int | None) -> Iterator[int]:  # type: ignore[no-untyped-def]
    """Accepts connections, greets each, and copies bytes between it and `port`, or the port that the greeting found."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        try:
            greeted = greet(client)
            inner, target = greeted if isinstance(greeted, tuple) else (greeted, port)
            there = socket.create_connection(("127.0.0.1", target))
            threading.Thread(target=copy, args=(there, inner), daemon=True).start()
            copy(inner, there)
        except OSError:
            client.close()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


def test_a_gateway_with_a_trusted_certificate_is_called_over_one_connection(
    gateway: StandInGateway, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
    with tls_in_front_of(gateway, certificate) as port:
        client = client_of(config(GATEWAY_URL=f"https://localhost:{port}", GATEWAY_TIMEOUT_MS=5000))
        for _ in range(2):
            call(client, b"x" * 200_000)
        assert client.is_healthy(5)
    assert len({request.connection for request in gateway.requests}) == 1
    assert gateway.requests[0].headers["host"] == f"localhost:{port}"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_of_an_unknown_issuer_or_for_another_name_is_refused(
    gateway: StandInGateway, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    if host != "localhost":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
    with tls_in_front_of(gateway, certificate) as port:
        client = client_of(config(GATEWAY_URL=f"https://{host}:{port}", GATEWAY_TIMEOUT_MS=5000))
        with pytest.raises(Failure) as raised:
            call(client)
    assert (raised.value.code, "secure connection" in raised.value.message) == (Code.GW_5XX, True)
    assert gateway.requests == []


def test_certificates_that_cannot_be_read_cost_the_job_an_attempt_and_not_the_worker(
    gateway: StandInGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    client = client_of(config(GATEWAY_URL=gateway.url.replace("http", "https")))
    with pytest.raises(Failure) as raised:
        call(client)
    assert raised.value.code == Code.GW_5XX


def test_the_certificates_are_read_once(certificate: tuple[Path, Path]) -> None:
    assert tls_context(str(certificate[0])) is tls_context(str(certificate[0]))


def test_a_gateway_with_tls_is_reached_through_a_tunnel(
    gateway: StandInGateway, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def open_tunnel(client: socket.socket) -> tuple[socket.socket, int]:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += client.recv(1)
        asked.append(request)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return client, int(request.split()[1].rpartition(b":")[2])

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
    with tls_in_front_of(gateway, certificate) as port, relay(open_tunnel, None) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:secret@127.0.0.1:{proxy}")
        client = client_of(config(GATEWAY_URL=f"https://localhost:{port}", GATEWAY_TIMEOUT_MS=5000))
        for _ in range(2):
            call(client)
    assert len(asked) == 1
    assert asked[0].startswith(f"CONNECT localhost:{port} HTTP/1.".encode())
    assert b"Proxy-Authorization: Basic " in asked[0].title().replace(b"basic", b"Basic")
    assert "proxy-authorization" not in {name.lower() for name in gateway.requests[0].headers}


def test_no_proxy_is_respected(gateway: StandInGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    call(client_of(config(GATEWAY_URL=gateway.url)))


def test_another_kind_of_proxy_is_a_failure_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1080")
    with pytest.raises(Failure) as raised:
        call(client_of(config(GATEWAY_URL="http://gateway.invalid")))
    assert raised.value.code == Code.GW_5XX


def test_credentials_are_a_header_and_not_part_of_the_address() -> None:
    endpoint = find_endpoint("http://user:secret@gateway.invalid:8080/base")
    assert "secret" not in str(endpoint.url)
    headers = endpoint.request_headers("POST", "/process", {})
    assert headers.startswith(b"POST /base/process HTTP/1.1\r\nHost: gateway.invalid:8080\r\n")
    assert b"Authorization: Basic " in headers
