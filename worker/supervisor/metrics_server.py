"""The process that serves metrics on METRICS_PORT: a child of the supervisor.

It is not a thread: the supervisor forks, and a lock that a thread holds at that time would stay locked in the child.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from convertq.queue.config import Config
from convertq.queue.counters import aggregate_counters
from convertq.queue.database.connection import application_name
from convertq.queue.database.errors import DATABASE_ERRORS
from convertq.queue.database.reconnecting import ReconnectingDatabase
from convertq.queue.errors import one_line
from convertq.queue.log.lines import Log
from convertq.queue.metrics import make_registry, read_metrics
from convertq.worker.supervisor.status_table import WorkerStatusTable
from prometheus_client import make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from _typeshed.wsgi import WSGIApplication as App

#: A client that sends nothing must not occupy a thread without limit.
CLIENT_TIMEOUT_SECONDS = 10.0
#: As WatchdogSec in the unit: no step of the supervisor's loop takes that long.
LOOP_TIMEOUT_SECONDS = 120.0


def serve_metrics(config: Config, status_table: WorkerStatusTable) -> None:
    """Runs in the child until a signal ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    server_id = status_table.server_id
    log = Log(config, server_id, f"{server_id}/metrics")
    app = with_probes(make_app(ScrapedCollector(config, log, server_id)), status_table, config.worker_concurrency.least)
    _listen(config, log, app).serve_forever()


def make_app(collector: Collector) -> App:
    """The application of prometheus_client, which knows the formats; a database that is down is a 503 answer."""
    scrape = make_wsgi_app(make_registry(collector))

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            answer: Iterable[bytes] = scrape(environ, start_response)
            return answer
        except DATABASE_ERRORS:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"the database is not reachable\n"]

    return app


def with_probes(app: App, status_table: WorkerStatusTable, least: int) -> App:
    """`/health` says whether the supervisor's loop is alive, `/ready` whether its workers are connected."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/health":
                silent_seconds = time.monotonic() - status_table.alive_at
                is_good, text = silent_seconds < LOOP_TIMEOUT_SECONDS, f"the loop ran {silent_seconds:.0f} s ago"
            case "/ready":
                connected = status_table.connected_workers
                is_good, text = connected >= least, f"{connected} workers are connected, {least} are needed"
            case "/metrics" | "/" | "":
                return app(environ, start_response)
            case _:
                start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
                return [b"there are /metrics, /health and /ready\n"]
        status = "200 OK" if is_good else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{text}\n".encode()]

    return answer


class ScrapedCollector(Collector):
    """Scrapes take turns on one connection. The first opens it, and so does the first after an error."""

    def __init__(self, config: Config, log: Log, server_id: str) -> None:
        self._config, self._turn = config, threading.Lock()
        self._database = ReconnectingDatabase(config.database, log, lambda: application_name(f"{server_id}/metrics"))

    def describe(self) -> list[Metric]:
        return []  # so that registering the collector sends no statement

    def collect(self) -> Iterator[Metric]:
        with self._turn:
            try:
                database = self._database.open()
                aggregate_counters(database)
                families = read_metrics(database, self._config)
                self._database.mark_working()
                yield from families
            except DATABASE_ERRORS as error:
                self._database.drop(error)
                raise


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs nothing: the client has closed its connection."""


class Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: there is a scrape every few seconds."""


def _listen(config: Config, log: Log, app: App) -> Server:
    """Retries until the port is free, and logs only the first failure."""

    def log_first_failure(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if state.attempt_number == 1 and isinstance(error, OSError):
            reason = one_line(error.strerror or str(error)).lower()
            log("metrics_down", reason=f"cannot listen on {config.metrics_host}:{config.metrics_port}: {reason}")

    retrying = Retrying(
        retry=retry_if_exception_type(OSError),
        wait=wait_exponential(multiplier=0.5, max=30),
        before_sleep=log_first_failure,
    )
    return retrying(_bound, config, app)


def _bound(config: Config, app: App) -> Server:
    family, _, _, _, address = socket.getaddrinfo(
        config.metrics_host, config.metrics_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = type("ListeningServer", (Server,), {"address_family": family})
    server: Server = listening(address[:2], Handler)
    server.set_app(app)
    return server
