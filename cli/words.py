"""How things are written in a terminal: names from outside, durations, times; sizes and counts as everywhere."""

from __future__ import annotations

from datetime import datetime, timedelta

from convertq.worker.words import counted as counted
from convertq.worker.words import size as size


def shown(text: str) -> str:
    """In one line, and harmless: what a terminal would act on is escaped."""
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def duration(span: timedelta | float) -> str:
    """`850ms`, `12s`, `3m12s`, `2h05m`, `4d03h`; two units at most."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 1:
        return f"{max(0, int(seconds * 1000))}ms"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def precise(seconds: float) -> str:
    """As a duration; but a gateway's time matters to the tenth of a second."""
    return f"{seconds:.1f}s" if 1 <= seconds < 60 else duration(seconds)


def moment(at: datetime, now: datetime) -> str:
    """In the reader's zone; the date only where it is another day's."""
    local, today = at.astimezone(), now.astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")
