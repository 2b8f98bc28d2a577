"""The process that answers scrapes on METRICS_PORT: a child of the supervisor, beside the workers and apart from them.

A process, not a thread: the supervisor forks, and what a thread held at that moment, its child would hold for ever.
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

from convertq.worker.config import Config
from convertq.worker.counters import fold_counters
from convertq.worker.db import application_name
from convertq.worker.errors import one_line
from convertq.worker.link import TROUBLE, Link
from convertq.worker.log import Log
from convertq.worker.metrics import Family, collect
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from _typeshed.wsgi import WSGIApplication as App

BACKOFF_MAX = 30.0  # s
CLIENT_TIMEOUT = 10.0  # s: a client that says nothing must not hold a thread for ever


def serve_metrics(config: Config, server_id: str) -> None:
    """In the child: until a signal ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    log = Log(config, server_id, f"{server_id}/metrics")
    app = make_app(ScrapedCollector(config, log, server_id))
    _listen(config, server_id, app).serve_forever()


def registry_of(collector: Collector) -> CollectorRegistry:
    """Without prometheus_client's own metrics of this process, which say nothing about the queue."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


def as_metric(family: Family) -> Metric:
    """prometheus_client names a counter without its `_total`."""
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.about, family.kind)
    for sample, labels, value in family.samples:
        metric.add_sample(sample, dict(labels), value)
    return metric


def make_app(collector: Collector) -> App:
    """prometheus_client's own, which knows the formats; a database that is down is an answer, not a traceback."""
    scrape = make_wsgi_app(registry_of(collector))

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            answer: Iterable[bytes] = scrape(environ, start_response)
            return answer
        except TROUBLE:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"the database is not reachable\n"]

    return app


class ScrapedCollector(Collector):
    """One connection for all scrapes, which take turns; opened by the first, and anew after trouble."""

    def __init__(self, config: Config, log: Log, server_id: str) -> None:
        self._config, self._turn = config, threading.Lock()
        self._link = Link(config.database, log, lambda: application_name(f"{server_id}/metrics"))

    def describe(self) -> list[Metric]:
        return []  # so that registering it asks the database nothing

    def collect(self) -> Iterator[Metric]:
        with self._turn:
            try:
                database = self._link.open()
                fold_counters(database)
                metrics = [as_metric(family) for family in collect(database, self._config)]
                self._link.works()
                yield from metrics
            except TROUBLE as error:
                self._link.drop(error)
                raise


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away: nothing to say."""


class Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is not worth a line."""


def _listen(config: Config, server_id: str, app: App) -> Server:
    """A port that is taken is said once, and tried again until it is free."""
    pause, said = 0.5, False
    while True:
        try:
            return _bound(config, app)
        except OSError as error:
            if not said:
                said = True
                where = f"{config.metrics_host}:{config.metrics_port}"
                _say(config, server_id, f"cannot listen on {where}: {one_line(error.strerror or str(error)).lower()}")
        time.sleep(pause)
        pause = min(pause * 2, BACKOFF_MAX)


def _bound(config: Config, app: App) -> Server:
    family, _, _, _, address = socket.getaddrinfo(
        config.metrics_host, config.metrics_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = type("ListeningServer", (Server,), {"address_family": family})
    server: Server = listening(address[:2], Handler)
    server.set_app(app)
    return server


def _say(config: Config, server_id: str, reason: str) -> None:
    Log(config, server_id, f"{server_id}/metrics")("metrics_down", reason=reason)
