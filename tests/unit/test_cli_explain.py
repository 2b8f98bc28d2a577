"""The sentence that says where a job is and what happens next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from convertq.cli.explain import SENTENCES, explain_job
from convertq.cli.formatting import timestamp
from convertq.queue.explain import State
from convertq.queue.facts import Facts, LastError

NOW = datetime(2026, 5, 2, 14, 3, 0, tzinfo=UTC)
SOON = NOW + timedelta(seconds=22)
JOB = {
    "id": UUID(int=1), "status": "queued", "now": NOW, "created_at": NOW - timedelta(minutes=5), "queued_at": None,
    "retry_after": None, "attempt_count": 1, "leased_by": None, "lease_expires_at": None, "last_attempt_at": None,
    "completed_at": None, "expires_at": None, "result_path": None, "upload_path": "x", "progress": None,
    "error_code": None, "error_message": None, "dead_letter": False, "route": "default",
}  # fmt: skip
HOLD = {
    "breaker": "closed", "by_hand": False, "opened_at": None, "probe_after": None, "active_servers": 1,
    "active_here": 1, "holder_status": "active", "holder_silent": 3.0, "max_calls": None,
    "takes_turns": False, "owner_max_running": 2,
}  # fmt: skip
NOT_ADAPTIVE = {"most_calls": None, "reason": None, "limit_state": None, "reason_since": None, "reason_seconds": 0.0}
OPEN = {"breaker": "open", "opened_at": NOW, "probe_after": SOON}


def sentence(hold: dict[str, Any] | None = None, facts: dict[str, Any] | None = None, **job: Any) -> str:
    row = {**JOB, **job}
    known: dict[str, Any] = {"result_is_recorded": row["result_path"] is not None, "max_attempts": 3, **(facts or {})}
    return explain_job(Facts(job=row, queue={**HOLD, **(hold or {})}, **known))


def test_a_job_whose_gateway_is_at_its_limit_says_so() -> None:
    fixed = {"max_calls": 7, "running_calls": 7, **NOT_ADAPTIVE}
    assert sentence(fixed, route="papers").endswith("its gateway papers is at its limit of calls at a time (limit 7)")
    assert "limit" not in sentence({**fixed, "running_calls": 6}, route="papers")
    adaptive = {**fixed, "most_calls": 64, "reason": "latency", "limit_state": {"ratio": 2.12}, "reason_since": NOW}
    assert sentence(adaptive, route="papers").endswith(f"(limit 7 of 64: latency 2.1× since {at(NOW)})")


def at(time: datetime) -> str:
    return timestamp(time, NOW)


def test_every_state_has_a_sentence() -> None:
    assert set(SENTENCES) == set(State)


def test_a_retry_names_its_time_its_attempt_and_the_last_error() -> None:
    last = LastError("GW_5XX", "the gateway answered 502")
    said = sentence(facts={"last_error": last}, retry_after=SOON)
    assert said == f"waits for its retry at {at(SOON)}, attempt 2 of 3: the gateway answered 502"


def test_trouble_with_a_file_is_tried_once_more_and_the_sentence_counts_so() -> None:
    last = LastError("IO_ERROR", "no such file")
    assert "attempt 2 of 2: no such file" in sentence(facts={"last_error": last}, retry_after=SOON)
    given_up = sentence(status="failed", error_code="IO_ERROR", error_message="x", dead_letter=True, attempt_count=2)
    assert given_up.startswith("given up after attempt 2 of 2: ")


def test_a_job_says_that_owners_take_turns_or_that_its_owner_has_a_limit() -> None:
    said = sentence(hold={"takes_turns": True}, facts={"position": 4})
    assert said.startswith("queued for 5m00s, 3 jobs before it, where owners take turns; ")
    said = sentence(facts={"is_limited": True})
    assert said == (
        "queued for 5m00s: no more than 2 jobs of its owner may run at a time (OWNER_MAX_RUNNING); "
        "it is taken in its turn when others of its owner have ended"
    )
    assert sentence(facts={"is_limited": True}, retry_after=SOON).startswith("waits for its retry")


def test_a_retry_that_is_due_is_simply_queued() -> None:
    said = sentence(retry_after=NOW)
    assert said == "queued for 5m00s, the first in the queue; the next free worker takes it in its turn"


def test_a_queue_without_a_worker_says_how_to_start_one() -> None:
    assert "convertq worker run" in sentence({"active_servers": 0})


def test_an_open_breaker_is_the_reason_before_any_other() -> None:
    said = sentence(OPEN, retry_after=SOON)
    assert said == f"held: the breaker is open since {at(NOW)}; the gateway is tried again at {at(SOON)}"


def test_a_breaker_opened_by_hand_says_how_to_close_it() -> None:
    by_hand = {**OPEN, "by_hand": True, "probe_after": None}
    assert "; `convertq breaker close` lets jobs through" in sentence(by_hand)
    said = sentence(by_hand, route="grobid")
    assert said.startswith("held: the breaker of gateway grobid was opened by hand at ")
    assert said.endswith("; `convertq breaker close --gateway grobid` lets jobs through")


def test_a_waiting_job_names_what_it_waits_for() -> None:
    needed = [{"id": UUID(int=7), "status": "processing"}]
    said = sentence(facts={"needed": needed}, status="uploaded")
    assert said == f"waits for job {UUID(int=7)} (processing) to complete"


def test_a_failed_dependency_comes_with_its_remedy() -> None:
    needed = [{"id": UUID(int=7), "status": "failed"}]
    assert f"convertq retry {UUID(int=7)}" in sentence(facts={"needed": needed}, status="uploaded")


def test_a_running_job_shows_its_worker_and_progress() -> None:
    running: dict[str, Any] = {
        "status": "processing",
        "leased_by": "host:1:ab/2",
        "lease_expires_at": SOON,
        "last_attempt_at": NOW,
    }
    said = sentence(**running, progress={"step": "converting", "percent": 40})
    first, _, then = said.partition("; ")
    assert first == f"being converted by host:1:ab/2, attempt 1 of 3, since {at(NOW)}: converting, 40%"
    assert then == f"the gateway has until {at(NOW + timedelta(minutes=3))}"


def test_a_call_that_should_be_over_is_said_to_be_and_what_happens_then() -> None:
    began = NOW - timedelta(minutes=3, seconds=10)
    said = sentence(status="processing", leased_by="host:1:ab/2", lease_expires_at=SOON, last_attempt_at=began)
    over, ended = at(NOW - timedelta(seconds=10)), at(NOW + timedelta(seconds=20))
    assert said.endswith(f"; the gateway's time was over at {over}: a worker that is stuck is ended at {ended}")


def test_a_lease_that_expired_is_said() -> None:
    late = NOW - timedelta(seconds=1)
    assert "its lease expired" in sentence(status="processing", leased_by="x/1", lease_expires_at=late)


def test_a_full_disk_here_is_said_with_what_is_left_to_hope_for() -> None:
    full = {"paused_here": "less than 100 MB free in the result directory"}
    assert sentence(facts=full).endswith("100 MB free in the result directory; `convertq doctor` has the remedy")
    assert sentence({"active_servers": 2}, full).endswith("; others take it in its turn")


def test_a_complete_job_says_how_to_get_its_result() -> None:
    said = sentence(status="complete", completed_at=NOW, result_path="x", expires_at=SOON)
    assert said.endswith(f"kept until {at(SOON)}: `convertq result {UUID(int=1)}`")


def test_a_result_that_is_gone_is_said_whether_the_row_or_the_disk_lacks_it() -> None:
    complete: dict[str, Any] = {"status": "complete", "completed_at": NOW}
    assert "expired" in sentence(**complete)
    assert "is not in this host's RESULTS_DIR" in sentence(facts={"has_result": False}, **complete, result_path="x")


def test_a_failed_job_offers_the_retry_only_with_its_source() -> None:
    failed: dict[str, Any] = {
        "status": "failed",
        "error_code": "GW_5XX",
        "error_message": "answered 502",
        "dead_letter": True,
    }
    assert sentence(**failed).startswith("given up after attempt 1 of 3: GW_5XX: answered 502; `convertq retry")
    assert "submit the file again" in sentence(facts={"has_source": False}, **failed)


def test_a_refused_file_offers_nothing() -> None:
    said = sentence(
        status="failed", error_code="NOT_PDF", error_message="not a PDF file", attempt_count=0, upload_path=None
    )
    assert said == "refused: NOT_PDF: not a PDF file; nothing of it is stored"
