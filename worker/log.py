"""Log lines: one event, one line, as JSON for journald or as text for a terminal; values can never forge a line."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any, TextIO

from convertq.worker.config import Config
from convertq.worker.journal import for_stderr
from convertq.worker.log_file import SharedFileHandler
from pythonjsonlogger.json import JsonEncoder, JsonFormatter

#: every event that is logged, and how loud it is
LEVELS = {
    "worker_start": logging.INFO,
    "ready": logging.INFO,
    "reclaim": logging.WARNING,
    "claim": logging.INFO,
    "start": logging.INFO,
    "gateway_ok": logging.INFO,
    "gateway_error": logging.WARNING,
    "complete": logging.INFO,
    "retry": logging.WARNING,
    "failed": logging.ERROR,
    "requeue": logging.WARNING,
    "lease_extended": logging.INFO,
    "lease_lost": logging.WARNING,
    "breaker_open": logging.ERROR,
    "breaker_closed": logging.INFO,
    "held": logging.WARNING,
    "db_down": logging.ERROR,
    "db_up": logging.INFO,
    "worker_died": logging.ERROR,
    "shutdown": logging.INFO,
    "metrics_down": logging.WARNING,
    "log_file": logging.WARNING,
    "reload": logging.INFO,
    "web": logging.INFO,
    "web_error": logging.ERROR,
    "request": logging.INFO,
}


#: of a record from nowhere: other handlers' formatters look for all that a record has
_NOWHERE = vars(logging.LogRecord("convertq", logging.NOTSET, "", 0, "", None, None))
_NAMES = {level: logging.getLevelName(level) for level in LEVELS.values()}


class Line(logging.LogRecord):
    """A record with what is in our lines: to find out the rest (path, thread, process, …) would take longer."""

    def __init__(self, level: int, event: str, fields: dict[str, Any]) -> None:
        self.__dict__.update(_NOWHERE)
        self.levelno, self.levelname = level, _NAMES[level]
        self.msg, self.fields, self.created = event, fields, time.time()


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = {key: value for key, value in _fields(record).items() if value is not None}
        worker = fields.pop("worker", None) or "-"
        for repeated in ("server", "environment", "correlation_id"):
            fields.pop(repeated, None)
        shown = " ".join(f"{key}={_plain(value)}" for key, value in fields.items())
        slot = str(worker).rpartition("/")[2]
        return f"{at} {record.levelname:<7} [{slot}] {record.getMessage():<14} {shown}".rstrip()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What Log has put there, under one name: a record's own attributes are many, and nobody reads them."""
    return getattr(record, "fields", {})


def _plain(value: Any) -> str:
    text = str(value)
    return text if text.isascii() and text.isprintable() and " " not in text and text else json.dumps(text)


class Log:
    """Knows who speaks: every line carries the server, the worker and the environment."""

    def __init__(self, config: Config, server: str = "", worker: str = "") -> None:
        self._logger = logging.getLogger("convertq")
        self.server, self.worker, self._environment = server, worker, config.worker_environment

    def __call__(self, event: str, **fields: Any) -> None:
        """Nothing is made for a level that is off; and no caller is looked up, which logging would do for each line."""
        level = LEVELS[event]
        if not self._logger.isEnabledFor(level):
            return
        if job_id := fields.get("job_id"):
            fields["job_id"] = fields["correlation_id"] = str(job_id)
        who = {"server": self.server, "worker": self.worker, "environment": self._environment}
        self._logger.handle(Line(level, event, who | fields))


def set_up_logging(config: Config) -> None:
    """Called once, before the fork: handlers write whole lines with one write each."""
    logger = logging.getLogger("convertq")
    logger.handlers.clear()
    logger.setLevel(config.log_level)
    logger.propagate = False
    stderr = LineHandler(sys.stderr)
    stderr.setFormatter(for_stderr(TextFormatter() if config.log_format == "text" else LineFormatter()))
    logger.addHandler(stderr)
    if config.log_file:
        copy = SharedFileHandler(config.log_file, lambda record, reason: _say_of_file(stderr, record, reason))
        copy.setFormatter(LineFormatter())
        logger.addHandler(copy)


def _say_of_file(stderr: logging.Handler, record: logging.LogRecord, reason: str) -> None:
    """On stderr alone, by whoever wanted to log: what the file cannot take cannot be said in the file."""
    who = {name: _fields(record).get(name, "") for name in ("server", "worker", "environment")}
    stderr.handle(Line(logging.WARNING, "log_file", who | {"reason": reason}))


class LineHandler(logging.StreamHandler[TextIO]):
    """Does what its parent does, but takes no second lock to flush."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.stream.write(self.format(record) + "\n")
            self.stream.flush()
        except Exception:  # noqa: BLE001 - the work goes on without its log
            self.handleError(record)


class LineFormatter(JsonFormatter):
    """Timestamps in UTC, ISO 8601, whatever the host's zone. A line is made of `fields` alone: nothing has to be looked
    for among a record's own attributes."""

    def __init__(self) -> None:
        super().__init__()
        self._encode = JsonEncoder().encode  # once: json.dumps would make one for each line

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if not isinstance(record, Line):  # of a library: its message is anything
            return self._encode({"timestamp": at, "level": record.levelname, "event": record.getMessage()})
        rest = self._encode(record.fields)[1:]
        return f'{{"timestamp": "{at}", "level": "{record.levelname}", "event": "{record.msg}", {rest}'
