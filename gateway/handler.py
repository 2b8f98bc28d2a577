"""Speaks HTTP with one client: routes, order of checks, and the answer to each request."""

from __future__ import annotations

import logging
import tempfile
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from convertq.gateway import delivery
from convertq.gateway.accept import JSON, OUTPUTS, XML, output_for
from convertq.gateway.answer import Answer, Refusal, json_answer, refusal_answer
from convertq.gateway.converter_pool import Job
from convertq.gateway.faults import Fault
from convertq.gateway.mapping import mapping_names
from convertq.gateway.request_body import RequestBody
from convertq.gateway.upload import FORM_OVERHEAD_BYTES, Upload, receive_form, receive_json

if TYPE_CHECKING:
    from convertq.gateway.server import GatewayServer

logger = logging.getLogger(__name__)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "convertq-gateway"
    sys_version = ""
    timeout = 60  # seconds that a client may be silent
    disable_nagle_algorithm = True
    server: GatewayServer
    body: RequestBody | None = None
    expects_continue = False

    def do_GET(self) -> None:
        self.began = time.monotonic()
        if self.route == "/health" and self.command in ("GET", "HEAD"):
            self.respond(json_answer(200, {"status": "ok", "mappings": mapping_names()}))
        else:
            self.respond(refusal_answer(self.wrong_route()))

    do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self.began = time.monotonic()
        with self.server.at_work(), tempfile.TemporaryDirectory(dir=self.server.folder) as folder:
            faults: list[Fault] = []
            try:
                answer = self.process(Path(folder), faults)
            except Refusal as refusal:
                answer = refusal_answer(refusal)
            self.respond(answer, faults)

    def process(self, folder: Path, faults: list[Fault]) -> Answer:
        if self.route != "/process":
            raise self.wrong_route()
        media = self.headers.get_content_type() if "Content-Type" in self.headers else ""
        if media not in ("multipart/form-data", JSON):
            raise Refusal(415, "send a PDF as multipart/form-data, or application/json")
        offers = (XML,) if media == JSON else (XML, JSON)
        wanted = output_for(self.headers.get("Accept"), offers)
        upload = self.receive(media, folder / "source")
        faults += self.struck_by(upload)
        for fault in faults:
            if fault.kind == "delay":
                self.server.stopping.wait(fault.argument)
            elif fault.kind == "fail":
                raise Refusal(int(fault.argument), "this failure was asked for")
        return self.convert(upload, folder, wanted)

    def receive(self, media: str, target: Path) -> Upload:
        limit = self.server.max_bytes
        whole = limit if media == JSON else limit + FORM_OVERHEAD_BYTES
        self.body = RequestBody(self.rfile, self.headers, whole, self.send_continue)
        if media == JSON:
            options = dict(parse_qsl(urlsplit(self.path).query))
            return receive_json(self.body, options, target, limit)
        return receive_form(self.body, self.headers["Content-Type"], target, limit)

    def struck_by(self, upload: Upload) -> list[Fault]:
        requested = self.headers.get("X-Fault", "") if self.server.allow_fault_header else ""
        try:
            return self.server.faults.for_request(self.correlation_id, upload.sha256, requested)
        except ValueError as error:
            raise Refusal(400, str(error)) from error

    def convert(self, upload: Upload, folder: Path, wanted: str) -> Answer:
        source, target = str(folder / "source"), folder / "target"
        output = OUTPUTS[wanted]
        self.server.pool.convert(Job(source, str(target), upload.kind, output, upload.mapping, upload.pretty))
        return Answer(200, f"{wanted}; charset=utf-8", target)

    def respond(self, answer: Answer, faults: list[Fault] | None = None) -> None:
        """Sends the answer, spoilt by the fault if there is one, and logs one line."""
        spoilt = {fault.kind: fault.argument for fault in faults or []}
        if "reset" in spoilt:
            delivery.reset(self.connection)
            self.close_connection = True
        else:
            body_left = self.body_left()
            self.send_head(answer, close=body_left or "truncate" in spoilt)
            self.send_body(answer, spoilt)
            if body_left:
                delivery.linger(self.connection)
        elapsed = time.monotonic() - self.began
        logger.info(
            "%s %.60r %d %d bytes %.3f s correlation %.60r%s",
            self.command, self.route, answer.status, answer.length, elapsed, self.correlation_id,
            f" fault {'+'.join(spoilt)}" if spoilt else "",
        )  # fmt: skip
        self.body, self.expects_continue = None, False

    def send_head(self, answer: Answer, close: bool) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(answer.length))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if close or self.server.stopping.is_set():
            self.send_header("Connection", "close")
        self.end_headers()

    def send_body(self, answer: Answer, spoilt: dict[str, float]) -> None:
        if self.command == "HEAD":
            return
        if "drip" in spoilt:
            delivery.send_dripping(answer, self.wfile, spoilt["drip"], self.server.stopping.wait)
        elif "truncate" in spoilt:
            delivery.send_truncated(answer, self.wfile)
        else:
            delivery.send_whole(answer, self.wfile)

    def body_left(self) -> bool:
        if self.body:
            return not self.body.finished
        return "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0") != "0"

    def wrong_route(self) -> Refusal:
        methods = {"/health": "GET", "/process": "POST"}
        if self.route in methods:
            return Refusal(405, f"{self.route} takes {methods[self.route]}", Allow=methods[self.route])
        return Refusal(404, "there are POST /process and GET /health")

    @property
    def route(self) -> str:
        return urlsplit(self.path).path

    @property
    def correlation_id(self) -> str:
        return str(self.headers.get("X-Correlation-ID", ""))

    def handle_expect_100(self) -> bool:
        self.expects_continue = True  # sent when the body is wanted, not before the headers are checked
        return True

    def send_continue(self) -> None:
        if self.expects_continue:
            super().handle_expect_100()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses before a method is called, e.g. a malformed request line."""
        self.close_connection = True
        self.request_version = self.protocol_version  # until parsed it is 0.9, which has no status line
        self.command = self.command or ""
        answer = json_answer(code, {"error": message or "the request is malformed"})
        self.send_head(answer, close=True)
        self.send_body(answer, {})

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """`respond` logs each request once, with all that is known."""

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)
