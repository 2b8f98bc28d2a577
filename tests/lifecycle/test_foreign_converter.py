"""A converter that knows nothing of convertq, called as a GATEWAYS_FILE describes it: ScienceBeam Parser."""

from __future__ import annotations

import contextlib
import os
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import etree

from tests.conftest import Environment, Supervisor
from tests.documents import Documents
from tests.processes import Process, run
from tests.waiting import WAIT_SECONDS, eventually

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "build/converter/bin"
SAMPLE = ROOT / "gateway/samples/papelaria.pdf"
ALTO = "{http://www.loc.gov/standards/alto/ns-v3#}"

pytestmark = pytest.mark.skipif(
    not (PROGRAMS.parent / ".installed").exists(), reason="ScienceBeam Parser is not installed: make test-converter"
)


class Converter:
    """Runs with its own defaults, except that it downloads nothing and admits one connection at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = int(listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes: list[Process] = []

    def start(self) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._directory),
            "SCIENCEBEAM_PARSER__PDFALTO__PATH": str(PROGRAMS / "pdfalto"),
            "SCIENCEBEAM_PARSER__LOOKUP": "{}",
            "SCIENCEBEAM_PARSER__LOGGING": "{}",
        }
        # uvicorn answers 503 to a request when this many connections are open, that of the request included.
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--limit-concurrency", "2"]
        program = [
            str(PROGRAMS / "python"),
            "-m",
            "uvicorn",
            "--factory",
            "sciencebeam_parser.service.server:create_app",
        ]
        self.processes.append(Process(*options, environment=environment, program=program))
        eventually(self._is_alive, WAIT_SECONDS, f"the converter answers; its log ends:\n{self.processes[-1].tail()}")

    def stop(self) -> None:
        self.processes[-1].stop()

    @property
    def probes(self) -> int:
        """Since its last start, without the one request by which `start` noticed it."""
        return self.processes[-1].tail(1000).count("GET /api/isalive") - 1

    def _is_alive(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/api/isalive", timeout=5) as answer:
            return bool(answer.status == 200)
        return False


@pytest.fixture
def converter(tmp_path: Path) -> Iterator[Converter]:
    converter = Converter(tmp_path)
    try:
        converter.start()
        yield converter
    finally:
        leftovers = [name for process in converter.processes for name in process.end()]
    assert not leftovers, f"left running by the test: {leftovers}"


def test_a_foreign_converter_is_called_as_the_file_describes_it(
    converter: Converter, supervisor: Supervisor, documents: Documents, environment: Environment, tmp_path: Path
) -> None:
    file = tmp_path / "gateways.toml"
    file.write_text(f"""
        [gateways.alto]
        url = "{converter.url}"
        mappings = ["layout"]
        path = "/api/pdfalto"
        file_field = "input"
        fields = {{}}
        accept = "application/vnd.alto+xml"
        health_path = "/api/isalive"
        busy_status = [503]

        [gateways.tei]
        url = "{converter.url}"
        mappings = ["paper"]
        path = "/api/processFulltextDocument"
        file_field = "input"
        fields = {{}}
        health_path = "/api/isalive"
    """)
    settings = {
        "GATEWAYS_FILE": file, "GATEWAY_URL": None, "WORKER_CONCURRENCY": 1, "RETRY_MAX_ATTEMPTS": 9,
        "CIRCUIT_WINDOW": 2,
    }  # fmt: skip
    host = supervisor(**settings)

    submitted = run("submit", str(SAMPLE), "--mapping", "layout", "--wait", environment=environment(**settings))
    assert submitted.returncode == 0, submitted.stderr
    found = documents.conn.execute("SELECT id FROM jobs").fetchone()
    assert found is not None
    page = etree.parse(documents.result(found["id"])).getroot()
    words = [str(word.get("CONTENT")) for word in page.iter(f"{ALTO}String")]
    assert (page.tag, words[:5]) == (f"{ALTO}alto", ["Papelaria", "Simão", "&", "Filhos,", "Lda."])

    # Its Accept is compared as a whole: what it does not make is refused at once, and never retried.
    refused = documents.wait_for(documents.put(SAMPLE.read_bytes(), mapping="paper"))
    assert (refused["status"], refused["error_code"], refused["attempt_count"]) == ("failed", "GW_4XX", 1)
    assert "406" in refused["error_message"]

    with socket.create_connection(("127.0.0.1", converter.port)):  # the one connection that it admits
        busy = documents.put(SAMPLE.read_bytes() + b"%% 1", mapping="layout")
        assert documents.wait_for_event(busy, "requeued", count=3)["meta"]["reason"] == "busy"
    assert documents.wait_for(busy, "complete")["attempt_count"] == 1
    assert not host.events("breaker_open")

    converter.stop()
    interrupted = documents.put(SAMPLE.read_bytes() + b"%% 2", mapping="layout")
    host.wait_for_event("breaker_open", gateway="alto")
    converter.start()
    documents.wait_for(interrupted, "complete")
    assert converter.probes >= 1
    # Each of its two checks may meet the connection of the one before, which the converter still counts.
    eventually(
        lambda: "healthy: /api/isalive answers 200" in run("doctor", environment=environment(**settings)).stdout,
        WAIT_SECONDS, "the doctor finds the converter healthy",
    )  # fmt: skip
