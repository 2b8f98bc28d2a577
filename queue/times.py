"""When a job may begin: not before one time, and not after another. Both are judged by the database's clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from convertq.queue.database.database import Database

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
RELATIVE = re.compile(r"\+(\d{1,9})([smhd])", re.ASCII)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
HOW = "give a time with its zone, such as 2026-12-24T18:00:00+01:00, or a time from now, such as +30m"

#: A time, or how long it is from now.
Moment = datetime | timedelta


class WrongTime(ValueError):
    """One line: which of the two times is wrong, and what is allowed."""


@dataclass(frozen=True)
class Times:
    not_before: datetime | None = None
    deadline: datetime | None = None


NO_TIMES = Times()


def parse_moment(name: str, text: str | None) -> Moment | None:
    """`name` is what the user calls it. None: no time is given. Raises WrongTime."""
    if not text:
        return None
    try:
        if found := RELATIVE.fullmatch(text):
            return timedelta(**{UNITS[found[2]]: int(found[1])})
        if RFC_3339.fullmatch(text):
            return datetime.fromisoformat(text.upper())
    except (ValueError, OverflowError):
        pass
    raise WrongTime(f"{name}: {text!r} is not a time: {HOW}")


def choose_times(database: Database, not_before: Moment | None, deadline: Moment | None) -> Times:
    """Raises WrongTime for a time in the past, and for a deadline that is not after `not_before`."""
    if not_before is None and deadline is None:
        return NO_TIMES
    now: datetime = database.run("get_time")[0]["now"]
    begins, ends = _time_of(not_before, now), _time_of(deadline, now)
    if begins is not None and begins < now:
        raise WrongTime(f"not_before is in the past: it is {now.isoformat(timespec='seconds')} now")
    if ends is not None and ends <= now:
        raise WrongTime(f"deadline is in the past: it is {now.isoformat(timespec='seconds')} now")
    if begins is not None and ends is not None and ends <= begins:
        raise WrongTime("deadline must be after not_before")
    return Times(begins, ends)


def _time_of(moment: Moment | None, now: datetime) -> datetime | None:
    try:
        return now + moment if isinstance(moment, timedelta) else moment
    except OverflowError:
        raise WrongTime("a time from now may be at most some thousand years") from None
