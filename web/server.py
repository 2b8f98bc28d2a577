"""The server: gunicorn's gevent worker with our application, on a socket of its own or one passed by systemd.

A request mostly waits: for the next piece of an upload, for a client to read a download, for the database. A greenlet
that waits costs a few kilobytes, so that stalled clients do not keep others from being served.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from typing import Any

from convertq.queue.config import Config
from convertq.web.app import create_app
from convertq.web.context import NAME, Web
from convertq.web.json_error_worker import JsonErrorWorker
from convertq.web.request_limits import RequestLimits
from convertq.web.web_log import WebLog, make_log
from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]

STUCK_AFTER_SECONDS = 60  # A process whose event loop does not run for this long is replaced.
GRACE_SECONDS = 30  # After SIGTERM, for requests that are being answered.
KEEP_ALIVE_SECONDS = 5  # For an idle connection, and for all headers of a request.
CONNECTIONS = 2000  # Of one process; most of them are idle.
OTHER_FILES = 200  # Descriptors of a process besides those of its clients.


class WebServer(BaseApplication):  # type: ignore[misc]
    """gunicorn reads no file and no command line, and of its environment variables only FORWARDED_ALLOW_IPS."""

    def __init__(self, app: Flask, settings: dict[str, Any]) -> None:
        self._app, self._settings = app, settings
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> RequestLimits:
        return RequestLimits(self._app)


def serve(config: Config, listener: socket.socket | None, ready: Callable[[], None]) -> None:
    """Runs until SIGTERM. Without a listener, it uses the sockets that systemd has passed."""
    log = make_log(config)
    app = create_app(config, log)
    web: Web = app.extensions[NAME]
    settings = {
        "worker_class": JsonErrorWorker,
        "workers": config.web_processes,
        "timeout": STUCK_AFTER_SECONDS,
        "graceful_timeout": GRACE_SECONDS,
        "keepalive": KEEP_ALIVE_SECONDS,
        "worker_connections": connections_within_limits(CONNECTIONS),
        "forwarder_headers": "",  # Otherwise a client could name another path than the one that its proxy has checked.
        "preload_app": True,  # The code is loaded once and shared by all processes.
        "control_socket_disable": True,
        "logger_class": type("Bound", (WebLog,), {"write": staticmethod(log)}),
        "when_ready": lambda server: ready(),
        "post_worker_init": lambda worker: web.open(),
        "worker_exit": lambda server, worker: web.close(),
    }
    if listener is not None:
        settings["bind"] = [f"fd://{listener.detach()}"]
    WebServer(app, settings).run()


def connections_within_limits(wanted: int) -> int:
    """The number of clients that the limit of open files allows, after the soft limit is raised as far as possible.

    Each client needs two descriptors: its socket, and the file that it uploads or downloads.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, (soft - OTHER_FILES) // 2), 10)


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def is_activated() -> bool:
    """Whether systemd has passed sockets to this process."""
    return os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS", "0") != "0"
