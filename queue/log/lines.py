"""The log: one event is one line on stderr, and a copy in LOG_FILE."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from typing import Any, TextIO

from convertq.queue.config import Config
from convertq.queue.log.events import LEVELS
from convertq.queue.log.formatters import JsonLineFormatter, TextLineFormatter
from convertq.queue.log.journal import for_stderr
from convertq.queue.log.shared_file import SharedFileHandler

_LEVEL_NAMES = {level: logging.getLevelName(level) for level in LEVELS.values()}


#: The attributes of an empty record: handlers of other libraries expect all of them.
_EMPTY_RECORD = vars(logging.LogRecord("convertq", logging.NOTSET, "", 0, "", None, None))


class EventRecord(logging.LogRecord):
    """A record whose message is a dictionary, as python-json-logger takes it.

    To find out the rest of a record (path, thread, process, …) would take longer than to write the line.
    """

    def __init__(self, level: int, fields: dict[str, Any]) -> None:
        self.__dict__.update(_EMPTY_RECORD)
        self.levelno, self.levelname = level, _LEVEL_NAMES[level]
        self.msg, self.created = fields, time.time()


class Log:
    """Every line carries the server, the worker and the environment."""

    def __init__(self, config: Config, server: str = "", worker: str = "") -> None:
        self._logger = logging.getLogger("convertq")
        self.server, self.worker, self._environment = server, worker, config.worker_environment

    def __call__(self, event: str, **fields: Any) -> None:
        if self.is_enabled(event):
            self.write(event, fields)

    def is_enabled(self, event: str) -> bool:
        """Whether the level of this event is logged: if not, a caller need not collect its fields."""
        return self._logger.isEnabledFor(LEVELS[event])

    def write(self, event: str, fields: dict[str, Any]) -> None:
        """Unlike the methods of a logger, this does not find out which function called it, and has no filters."""
        if job_id := fields.get("job_id"):
            fields["job_id"] = fields["correlation_id"] = str(job_id)
        known = {
            "event": event, "server": self.server, "worker": self.worker, "environment": self._environment, **fields
        }  # fmt: skip
        record = EventRecord(LEVELS[event], known)
        for handler in self._logger.handlers:
            handler.handle(record)


def set_up_logging(config: Config) -> None:
    """Called once, before the fork. Each handler writes a whole line with one system call."""
    logger = logging.getLogger("convertq")
    logger.handlers.clear()
    logger.setLevel(config.log_level)
    logger.propagate = False
    stderr = LineHandler(sys.stderr)
    stderr.setFormatter(for_stderr(TextLineFormatter() if config.log_format == "text" else JsonLineFormatter()))
    logger.addHandler(stderr)
    if config.log_file:
        copy = SharedFileHandler(config.log_file, lambda record, reason: _log_file_problem(stderr, record, reason))
        copy.setFormatter(JsonLineFormatter())
        logger.addHandler(copy)


def _log_file_problem(stderr: logging.Handler, record: logging.LogRecord, reason: str) -> None:
    """Goes to stderr alone, in the name of the process whose line the file could not take."""
    fields = record.msg if isinstance(record.msg, dict) else {}
    origin = {name: fields.get(name, "") for name in ("server", "worker", "environment")}
    stderr.handle(EventRecord(LEVELS["log_file"], {"event": "log_file", **origin, "reason": reason}))


class LineHandler(logging.StreamHandler[TextIO]):
    """Works like its parent class, but has no filters, and takes no second lock to flush."""

    def handle(self, record: logging.LogRecord) -> bool:
        with self.lock or contextlib.nullcontext():
            self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.stream.write(self.format(record) + "\n")
            self.stream.flush()
        except Exception:  # noqa: BLE001 - a worker goes on without its log
            self.handleError(record)
