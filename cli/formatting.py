"""Names, durations and times as a terminal shows them. Sizes and counts are in queue/quantities.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from convertq.queue.database.timestamps import ExtendedTimestamp, is_never


def shown(text: str) -> str:
    """The text on one line. Control characters are escaped, because a terminal would act on them."""
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
    """Like `duration`, but with a tenth of a second below a minute."""
    return f"{seconds:.1f}s" if 1 <= seconds < 60 else duration(seconds)


def timestamp(at: datetime, now: datetime) -> str:
    """A time in the local time zone, with its date unless that is today."""
    if isinstance(at, ExtendedTimestamp):
        return far_timestamp(at)
    local, today = at.astimezone(), now.astimezone().date()
    return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def far_timestamp(at: ExtendedTimestamp) -> str:
    """A time outside the range of datetime."""
    return "never" if is_never(at) else at.text
