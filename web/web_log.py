"""gunicorn's messages as lines of our log: one per request, without anything secret, and one per event."""

from __future__ import annotations

import logging
import os
import socket
import sys
from datetime import timedelta
from typing import Any

from convertq.queue.config import Config
from convertq.queue.errors import one_line
from convertq.queue.log.lines import Log
from gunicorn.glogging import Logger  # type: ignore[import-untyped]

READ_METHODS = frozenset({"GET", "HEAD"})


def make_log(config: Config) -> Log:
    name = f"{socket.gethostname()}:{os.getpid()}"
    return Log(config, name, f"{name}/web")


class WebLog(Logger):  # type: ignore[misc]
    """gunicorn's logger_class. Headers, cookies and queries are never logged: they contain secrets."""

    write: Log

    def setup(self, cfg: Any) -> None:
        """Installs none of gunicorn's handlers and formats."""

    def access(self, resp: Any, req: Any, environ: dict[str, Any], request_time: timedelta) -> None:
        """Successful reads are logged at LOG_LEVEL=DEBUG only: pages and probes send one every second."""
        method, path = environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", "")
        status, took = int(str(resp.status).split()[0]), int(request_time.total_seconds() * 1000)
        is_quiet = method in READ_METHODS and status < 400 and not path.endswith("/download")
        if is_quiet and not logging.getLogger("convertq").isEnabledFor(logging.DEBUG):
            return
        self.write(
            "request", pid=os.getpid(), method=method, path=path, http_status=status, duration_ms=took, bytes=resp.sent
        )

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.write("web", pid=os.getpid(), what=_line(msg, args))

    def warning(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.write("web_error", pid=os.getpid(), error_message=_line(msg, args))

    def exception(self, msg: str, *args: Any, **kwargs: Any) -> None:
        if isinstance(sys.exception(), TimeoutError):  # The client stalls; the server has no error.
            self.info("A client stopped reading its answer; its connection is closed")
            return
        self.write("web_error", pid=os.getpid(), error_message=_line(msg, args), exc_info=True)

    error = critical = warning

    def debug(self, msg: str, *args: Any, **kwargs: Any) -> None: ...


def _line(message: str, words: tuple[Any, ...]) -> str:
    return one_line(str(message) % words if words else str(message))
