"""The two forms of a log line: JSON for the journal and for LOG_FILE, text for a terminal."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from pythonjsonlogger.json import JsonEncoder

#: In a text line the worker stands in front, and these would only repeat what the reader knows.
REPEATED = ("event", "worker", "server", "environment", "correlation_id")


class JsonLineFormatter(logging.Formatter):
    """Timestamps are in UTC (ISO 8601), in any time zone of the host. JSON escapes line breaks, so no value can forge
    a line. The formatter of python-json-logger could do the same, and copies the fields several times for each line."""

    def __init__(self) -> None:
        super().__init__()
        self._encode = JsonEncoder(check_circular=False).encode  # json.dumps would make an encoder for each line
        self._second, self._date_and_time = 0, ""

    def format(self, record: logging.LogRecord) -> str:
        fields = self._encode(_fields_of(record))
        return f'{{"timestamp": "{self.formatTime(record)}", "level": "{record.levelname}", {fields[1:]}'

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - of logging
        """Formats the date once a second."""
        second = int(record.created)
        if second != self._second:
            self._date_and_time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        return f"{self._date_and_time}.{int((record.created - second) * 1000):03}+00:00"


class TextLineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = _fields_of(record)
        slot = str(fields.get("worker") or "-").rpartition("/")[2]
        shown = " ".join(
            f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None and name not in REPEATED
        )
        milliseconds = int(record.created % 1 * 1000)
        return f"{at}.{milliseconds:03} {record.levelname:<7} [{slot}] {fields['event']:<14} {shown}".rstrip()


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    return record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}


def _quoted(value: Any) -> str:
    """A value that could be taken for something else is written as a JSON string."""
    text = str(value)
    return text if text.isascii() and text.isprintable() and " " not in text and text else json.dumps(text)
