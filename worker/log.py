"""Log lines: one event, one line, as JSON for journald or as text for a terminal; values can never forge a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from convertq.worker.config import Config
from convertq.worker.log_file import SharedFileHandler
from pythonjsonlogger.json import JsonFormatter

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
    "web": logging.INFO,
    "web_error": logging.ERROR,
    "request": logging.INFO,
}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = {key: value for key, value in vars(record).items() if key not in _STANDARD and value is not None}
        worker = fields.pop("worker", None) or "-"
        for repeated in ("server", "environment", "correlation_id"):
            fields.pop(repeated, None)
        shown = " ".join(f"{key}={_plain(value)}" for key, value in fields.items())
        slot = str(worker).rpartition("/")[2]
        return f"{time} {record.levelname:<7} [{slot}] {record.getMessage():<14} {shown}".rstrip()


def _plain(value: Any) -> str:
    text = str(value)
    return text if text.isascii() and text.isprintable() and " " not in text and text else json.dumps(text)


class Log:
    """Knows who speaks: every line carries the server, the worker and the environment."""

    def __init__(self, config: Config, server: str = "", worker: str = "") -> None:
        self._logger = logging.getLogger("convertq")
        self.server, self.worker, self._environment = server, worker, config.worker_environment

    def __call__(self, event: str, **fields: Any) -> None:
        if job_id := fields.get("job_id"):
            fields["job_id"] = fields["correlation_id"] = str(job_id)
        who = {"server": self.server, "worker": self.worker, "environment": self._environment}
        self._logger.log(LEVELS[event], event, extra=who | fields)


def set_up_logging(config: Config) -> None:
    """Called once, before the fork: handlers write whole lines with one write each."""
    logger = logging.getLogger("convertq")
    logger.handlers.clear()
    logger.setLevel(config.log_level)
    logger.propagate = False
    stderr = logging.StreamHandler(sys.stderr)
    stderr.setFormatter(TextFormatter() if config.log_format == "text" else _json_formatter())
    logger.addHandler(stderr)
    if config.log_file:
        copy = SharedFileHandler(config.log_file, lambda record, reason: _say_of_file(stderr, record, reason))
        copy.setFormatter(_json_formatter())
        logger.addHandler(copy)


def _say_of_file(stderr: logging.Handler, record: logging.LogRecord, reason: str) -> None:
    """On stderr alone, by whoever wanted to log: what the file cannot take cannot be said in the file."""
    who = {name: getattr(record, name, "") for name in ("server", "worker", "environment")}
    stderr.handle(
        logging.makeLogRecord(
            {"msg": "log_file", "levelno": logging.WARNING, "levelname": "WARNING", **who, "reason": reason}
        )
    )


class LineFormatter(JsonFormatter):
    """Timestamps in UTC, ISO 8601, whatever the host's zone."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _json_formatter() -> logging.Formatter:
    names = {"asctime": "timestamp", "levelname": "level", "message": "event"}
    return LineFormatter("{asctime}{levelname}{message}", style="{", rename_fields=names)
