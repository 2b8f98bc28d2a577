"""What the operators' page shows of the breaker and of the servers, in words."""

from __future__ import annotations

from typing import Any

import pytest
from convertq.queue.servers import SHOW_ENDED_SECONDS, UNKNOWN, UNREGISTERED, ServerStatus, is_shown
from convertq.web.dashboard import TONES, describe_reclaim, describe_retries, view_breaker, view_servers

CLOSED: dict[str, Any] = {
    "state": "closed", "by_hand": False, "open_seconds": None, "next_probe_seconds": None, "calls": 20, "failures": 1,
    "threshold": 0.5, "max_calls": None,
}  # fmt: skip
OPEN = {**CLOSED, "state": "open", "open_seconds": 75.0, "next_probe_seconds": 12.5, "failures": 11}
WAITS = "Jobs wait and use up no attempt; the gateway is tried again"
JOB = {"slot": "2", "job_id": "0b0c8a52", "step": "converting", "percent": 40, "seconds": 3.2}


def server(status: str = ServerStatus.ACTIVE, heartbeat_seconds: float = 1.0, **columns: Any) -> dict[str, Any]:
    given = {
        "id": "conv-01:7:ab", "hostname": "conv-01", "pid": 7, "version": "0.1.0", "environment": None,
        "concurrency": 3, "up_seconds": 7300.0, "jobs": [],
    }  # fmt: skip
    return {**given, "status": status, "heartbeat_seconds": heartbeat_seconds, **columns}


@pytest.mark.parametrize(
    ("breaker", "detail"),
    [
        ({**CLOSED, "calls": 0, "failures": 0}, "No gateway call is recorded yet."),
        (CLOSED, "1 of the last 20 gateway calls failed; it opens at 50 %."),
        ({**CLOSED, "threshold": 0.125}, "1 of the last 20 gateway calls failed; it opens at 12.5 %."),
        (OPEN, f"Open for 1 min: 11 of the last 20 gateway calls failed. {WAITS} in 12 s."),
        ({**OPEN, "next_probe_seconds": 0.0}, f"Open for 1 min: 11 of the last 20 gateway calls failed. {WAITS} now."),
        (
            {**OPEN, "by_hand": True},
            "Open for 1 min, by hand: jobs wait and use up no attempt until it is closed by hand.",
        ),
    ],
)
def test_the_breaker_is_explained_in_a_sentence(breaker: dict[str, Any], detail: str) -> None:
    assert view_breaker(breaker)["detail"] == detail


@pytest.mark.parametrize(
    ("breaker", "open_label", "can_close"),
    [
        (CLOSED, "Hold the queue", False),
        (OPEN, "Keep holding it", True),
        ({**OPEN, "state": "half_open"}, "Keep holding it", True),
        ({**OPEN, "by_hand": True}, None, True),
    ],
)
def test_only_what_would_change_the_breaker_is_offered(
    breaker: dict[str, Any], open_label: str | None, can_close: bool
) -> None:
    shown = view_breaker(breaker)
    assert (shown["open_label"], shown["can_close"]) == (open_label, can_close)


def test_a_server_that_ended_is_shown_for_ten_minutes_and_as_long_as_it_has_a_job() -> None:
    assert SHOW_ENDED_SECONDS == 600
    assert is_shown(server(ServerStatus.DEAD, 599.0))
    assert not is_shown(server(ServerStatus.STOPPED, 600.0))
    assert is_shown(server(ServerStatus.DEAD, 6000.0, jobs=[JOB]))
    assert is_shown(server(ServerStatus.DRAINING, 6000.0))


def test_a_running_server_shows_all_workers_and_one_that_ended_those_with_a_job() -> None:
    shown = view_servers([server(jobs=[JOB]), server(ServerStatus.DEAD, 20.0, jobs=[JOB], id="dead")])
    running, dead = shown["rows"]
    assert [(each["slot"], each["job_id"], each["percent"], each["detail"]) for each in running["workers"]] == [
        ("1", None, None, ""), ("2", "0b0c8a52", 40, "converting, 3 s"), ("3", None, None, "")
    ]  # fmt: skip
    assert [each["slot"] for each in dead["workers"]] == ["2"]
    assert (shown["workers"], shown["summary"]) == (3, "2 of 3 workers busy")


def test_a_job_that_has_not_reported_a_step_has_no_percentage() -> None:
    [row] = view_servers([server(concurrency=1, jobs=[{**JOB, "slot": "1", "step": None, "percent": None}])])["rows"]
    assert row["workers"] == [{"slot": "1", "job_id": "0b0c8a52", "percent": None, "detail": "3 s"}]


def test_the_facts_of_a_server_leave_out_what_is_not_known() -> None:
    unregistered = {"id": "lost:1:x", **UNKNOWN, "status": UNREGISTERED, "jobs": [JOB]}
    rows = view_servers([server(environment="blue"), server(ServerStatus.STOPPED), unregistered])["rows"]
    assert [row["facts"] for row in rows] == [
        ["blue", "version 0.1.0", "up 2 h", "last heartbeat 1 s ago"],
        ["version 0.1.0", "up 2 h"],
        ["holds a job, but is not registered"],
    ]
    assert [row["name"] for row in rows] == ["conv-01:7", "conv-01:7", "lost:1:x"]


def test_every_status_of_a_server_has_a_tone() -> None:
    assert TONES.keys() == {*ServerStatus, UNREGISTERED}


def test_no_server_needs_no_summary() -> None:
    assert view_servers([]) == {"rows": [], "workers": 0, "summary": ""}


def test_the_effect_of_a_button_is_described() -> None:
    assert describe_retries(2000, 0) == "2,000 jobs queued again"
    assert describe_retries(1, 3).startswith("1 job queued again, 3 left: no longer failed, source gone, or ")
    assert describe_reclaim(0, 0) == "No job was lost"
    assert describe_reclaim(0, 1) == "0 jobs queued again, 1 given up"


def test_a_limit_is_shown_and_an_adaptive_one_with_its_reason() -> None:
    fixed = {**CLOSED, "max_calls": 12, "running_calls": 9, "limit_reason": None}
    assert view_breaker(fixed)["detail"].endswith(" 9 of at most 12 calls at a time.")
    adaptive = {**fixed, "most_calls": 64, "limit_reason": "latency 2.1×", "limit_seconds": 75.0}
    assert view_breaker(adaptive)["detail"].endswith("at a time; limit 12 of 64: latency 2.1× for 1 min.")
