"""The timeline's details: words for people, and nothing of what is known left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from convertq.cli.event_details import details
from convertq.cli.formatting import timestamp

NOW = datetime(2026, 5, 2, 14, 3, 0, tzinfo=UTC)
SOON = NOW + timedelta(seconds=22)


def test_a_failed_call_reads_as_a_sentence() -> None:
    meta = {
        "worker": "host:1:ab/2", "attempt": 1, "error_code": "GW_5XX", "gateway_ms": 6003, "gateway_ok": False,
        "duration_ms": 200, "retry_after": SOON.isoformat(), "error_message": "the gateway answered 502",
        "gateway_status": 502,
    }  # fmt: skip
    assert details(meta, NOW) == (
        "worker host:1:ab/2, attempt 1, GW_5XX: the gateway answered 502, gateway 502 in 6.0s, took 200ms, "
        f"again at {timestamp(SOON, NOW)}"
    )


def test_a_job_that_made_no_call_names_no_gateway() -> None:
    assert details({"attempt": 2, "gateway_ok": None}, NOW) == "attempt 2"


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("dependencies", "every job that it waited for is complete"),
        ("trigger", "noted for another program"),
        ("billing", "by billing"),
    ],
)
def test_an_event_says_what_brought_it_about(by: str, words: str) -> None:
    assert details({"by": by, "attempt": 1}, NOW) == f"{words}, attempt 1"


def test_what_nobody_knows_here_is_shown_as_it_is() -> None:
    assert details({"reason": "manual", "ticket": 7}, NOW) == "manual, ticket 7"


@pytest.mark.parametrize("name", ["gateway_ms", "duration_ms", "retry_after"])
@pytest.mark.parametrize("value", ["soon", {"a": 1}, [], "\x1b[31m"])
def test_another_programs_nonsense_is_shown_and_harmless(name: str, value: Any) -> None:
    said = details({name: value, "attempt": 1}, NOW)
    assert said.startswith(f"attempt 1, {name} ")
    assert said.isprintable()
