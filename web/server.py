"""The server: gunicorn with our application, few processes of many threads, on a socket of ours or of systemd's."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from convertq.web.app import create_app
from convertq.web.context import NAME, Web
from convertq.web.patient_worker import PatientWorker
from convertq.web.web_log import WebLog, make_log
from convertq.worker.config import Config
from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

THREADS = 32  # of one process: most of them wait for a client
STUCK_AFTER = 60  # s; a process that does not even accept is replaced
GRACE = 30  # s for requests in hand when it is told to stop
KEEP_ALIVE = 5  # s
CONNECTIONS = 800  # of one process, most of them silent; below the 1024 descriptors that a process has by default


class WebServer(BaseApplication):  # type: ignore[misc]
    """gunicorn reads its settings here: no file, no command line, and of its variables only FORWARDED_ALLOW_IPS."""

    def __init__(self, app: Flask, settings: dict[str, Any]) -> None:
        self._app, self._settings = app, settings
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return self._app


def serve(config: Config, listener: socket.socket | None, ready: Callable[[], None]) -> None:
    """Until SIGTERM; with no listener, on the sockets that systemd passed on."""
    log = make_log(config)
    app = create_app(config, log)
    web: Web = app.extensions[NAME]
    settings = {
        "worker_class": PatientWorker,
        "workers": config.web_processes,
        "threads": THREADS,
        "timeout": STUCK_AFTER,
        "graceful_timeout": GRACE,
        "keepalive": KEEP_ALIVE,
        "worker_connections": CONNECTIONS,
        "forwarder_headers": "",  # else a client behind a proxy could name another path than the proxy has let through
        "preload_app": True,  # read once, shared by all processes
        "control_socket_disable": True,
        "logger_class": type("Bound", (WebLog,), {"log_of": staticmethod(log)}),
        "when_ready": lambda server: ready(),
        "post_fork": lambda server, worker: web.connections.open(),  # what must not be shared is made after the fork
        "worker_exit": lambda server, worker: web.connections.close(),
    }
    if listener is not None:
        settings["bind"] = [f"fd://{listener.detach()}"]
    WebServer(app, settings).run()


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def is_activated() -> bool:
    """Whether systemd has passed its sockets to this very process."""
    return os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS", "0") != "0"
