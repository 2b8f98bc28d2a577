"""Lines for the journal: where stderr leads there, each begins with its priority, which journald removes again."""

from __future__ import annotations

import logging
import os
from functools import cache

#: The priorities of syslog, for `journalctl -p err`.
PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
STDERR = 2


@cache
def is_journal() -> bool:
    """JOURNAL_STREAM names the device and inode of systemd's stream; stderr may have been redirected since."""
    try:
        found = os.fstat(STDERR)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def prefix(level: int) -> str:
    return f"<{PRIORITIES.get(level, 6)}>" if is_journal() else ""


def error_line(line: str) -> str:
    """For errors that are written without the log: before it is set up, or at the end of a process."""
    return prefix(logging.ERROR) + line


class PriorityFormatter(logging.Formatter):
    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return prefix(record.levelno) + self._inner.format(record)


def for_stderr(formatter: logging.Formatter) -> logging.Formatter:
    return PriorityFormatter(formatter) if is_journal() else formatter
