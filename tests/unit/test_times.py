"""Times as a submitter writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from convertq.queue.times import WrongTime, parse_moment


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("+30m", timedelta(minutes=30)),
        ("+0s", timedelta()),
        ("+2d", timedelta(days=2)),
        ("2026-12-24T18:00:00Z", datetime(2026, 12, 24, 18, tzinfo=UTC)),
        ("2026-12-24t18:00:00.5z", datetime(2026, 12, 24, 18, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-12-24 18:00:00+01:00", datetime(2026, 12, 24, 17, tzinfo=UTC)),
        ("", None),
    ],
)
def test_a_time_with_its_zone_or_from_now(text: str, meant: datetime | timedelta | None) -> None:
    assert parse_moment("deadline", text) == meant


@pytest.mark.parametrize(
    "text",
    ["tomorrow", "2026-12-24", "2026-12-24T18:00:00", "2026-13-01T00:00:00Z", "30m", "+m", "+1w", "-5m",
     "+99999999999d", "\uff12026-12-24T18:00:00Z", "2026-12-24T18:00:00Z\n", "infinity"],
)  # fmt: skip
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(WrongTime, match=r"^--deadline: .* is not a time: give a time with its zone"):
        parse_moment("--deadline", text)
