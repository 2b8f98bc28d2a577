"""gunicorn's words as lines of our log: one per request, without what could be a secret, and one per event."""

from __future__ import annotations

import logging
import os
import socket
from datetime import timedelta
from typing import Any

from convertq.worker.config import Config
from convertq.worker.errors import one_line
from convertq.worker.log import Log
from gunicorn.glogging import Logger  # type: ignore[import-untyped]

READING = frozenset({"GET", "HEAD"})


def make_log(config: Config) -> Log:
    name = f"{socket.gethostname()}:{os.getpid()}"
    return Log(config, name, f"{name}/web")


class WebLog(Logger):  # type: ignore[misc]
    """As gunicorn's logger_class. Headers, cookies and queries are never written: they hold secrets."""

    log_of: Log

    def setup(self, cfg: Any) -> None:
        """Nothing of gunicorn's own: no handler, no format."""

    def access(self, resp: Any, req: Any, environ: dict[str, Any], request_time: timedelta) -> None:
        """What only looks, and is answered, is written with LOG_LEVEL=DEBUG: pages and probes ask every second."""
        method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
        status, took = int(str(resp.status).split()[0]), int(request_time.total_seconds() * 1000)
        looks_only = method in READING and status < 400 and not path.endswith("/download")
        if looks_only and not logging.getLogger("convertq").isEnabledFor(logging.DEBUG):
            return
        self.log_of(
            "request", pid=os.getpid(), method=method, path=path, http_status=status, duration_ms=took, bytes=resp.sent
        )

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.log_of("web", pid=os.getpid(), what=_line(msg, args))

    def warning(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.log_of("web_error", pid=os.getpid(), error_message=_line(msg, args))

    def exception(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.log_of("web_error", pid=os.getpid(), error_message=_line(msg, args), exc_info=True)

    error = critical = warning

    def debug(self, msg: str, *args: Any, **kwargs: Any) -> None: ...


def _line(message: str, words: tuple[Any, ...]) -> str:
    return one_line(str(message) % words if words else str(message))
