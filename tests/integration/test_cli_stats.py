"""`convertq stats`: the whole queue on one screen, true, in 80 columns, and the same as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from convertq.queue.errors import Code, Failure
from convertq.queue.store.directory_result import DirectoryResult

from tests import jobs as make
from tests.conftest import Environment
from tests.jobs import Conn
from tests.processes import run

KEYS = {
    "jobs": {"uploaded", "queued", "processing", "complete", "failed", "cancelled"},
    "oldest_queued_seconds": None,
    "completed_per_minute": {"1m", "5m", "60m"},
    "completed_60m": None,
    "failed_60m": None,
    "success_rate": None,
    "gateway_seconds": {"calls", "p50", "p95", "p99"},
    "errors_24h": None,
    "totals": {"created", "completed", "failed", "cancelled", "retries"},
    "breaker": {
        "state", "by_hand", "opened_at", "open_seconds", "open_seconds_total", "next_probe_seconds", "probe_by",
        "trial_job", "calls", "failures", "window", "threshold", "gateway", "max_calls",
        "most_calls", "limit_reason", "limit_since", "limit_seconds",
        "running_calls",
    },
    "gateways": {"default"},
    "servers": {"active", "draining", "stopped", "dead", "workers"},
    "pauses": None,
}  # fmt: skip


def stats(environment: Environment, **overrides: object) -> dict[str, Any]:
    done = run("stats", "--json", environment=environment(**overrides))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def screen(environment: Environment) -> str:
    done = run("stats", environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def convert(conn: Conn, gateway_ms: int) -> None:
    result = DirectoryResult("/x", "/x.part", 1)
    assert make.complete(conn, make.claimed(conn), result=result, gateway_status=200, gateway_ms=gateway_ms)


def failure(code: Code) -> Failure:
    return Failure(code, "the gateway answered 503", called=True, gateway_ms=100)


def test_the_keys_of_the_json_are_those_that_are_promised(environment: Environment) -> None:
    found = stats(environment)
    assert found.keys() == KEYS.keys()
    for name, keys in KEYS.items():
        if keys is not None:
            assert set(found[name]) == keys, name


def test_an_empty_database_is_an_answer_too(environment: Environment) -> None:
    found = stats(environment)
    assert set(found["jobs"].values()) == {0}
    assert found["oldest_queued_seconds"] is found["success_rate"] is found["gateway_seconds"]["p50"] is None
    assert "none active" in screen(environment)


def test_it_shows_what_happened(conn: Conn, environment: Environment) -> None:
    for gateway_ms in range(100, 1100, 100):
        convert(conn, gateway_ms)
    make.fail(conn, make.claimed(conn), failure(Code.GW_5XX))
    make.fail(conn, make.claimed(conn), failure(Code.GW_TIMEOUT))
    make.insert_job(conn)
    make.claimed(conn)
    found = stats(environment)
    assert found["jobs"] == {"uploaded": 0, "queued": 1, "processing": 1, "complete": 10, "failed": 2, "cancelled": 0}
    assert found["completed_per_minute"] == {"1m": 10, "5m": 2, "60m": pytest.approx(1 / 6)}
    assert found["success_rate"] == pytest.approx(10 / 12)
    assert found["gateway_seconds"]["calls"] == 12
    assert found["gateway_seconds"]["p50"] == pytest.approx(0.45)
    assert found["errors_24h"] == {"GW_5XX": 1, "GW_TIMEOUT": 1}
    assert found["totals"] == {"created": 14, "completed": 10, "failed": 2, "cancelled": 0, "retries": 0}
    assert found["servers"]["active"] == found["servers"]["workers"] == 1


def test_a_failed_call_whose_job_is_tried_again_is_no_error_and_the_screen_says_what_it_counts(
    conn: Conn, environment: Environment
) -> None:
    assert make.retry_later(conn, make.claimed(conn))
    assert "errors      no job failed in 24h" in screen(environment)
    make.fail(conn, make.claimed(conn), failure(Code.GW_5XX))
    assert "errors      GW_5XX 1   (failed in 24h)" in screen(environment)


def test_what_is_past_counts_no_more_for_the_pace(conn: Conn, environment: Environment) -> None:
    for minutes, kind in ((3, "complete"), (30, "complete"), (90, "complete"), (90, "failed"), (2000, "failed")):
        job = make.insert_job(conn, "uploaded")
        conn.execute(
            "INSERT INTO job_events (job_id, event_type, at, meta)"
            " VALUES (%s, %s, now() - %s * interval '1 minute', '{\"error_code\": \"IO_ERROR\"}')",
            [job, kind, minutes],
        )
    found = stats(environment)
    assert found["completed_per_minute"] == {"1m": 0, "5m": 1 / 5, "60m": 2 / 60}
    assert (found["completed_60m"], found["failed_60m"], found["success_rate"]) == (2, 0, 1)
    assert found["errors_24h"] == {"IO_ERROR": 1}


def test_the_gateways_times_are_those_of_the_last_thousand_calls(conn: Conn, environment: Environment) -> None:
    job = make.insert_job(conn)
    conn.execute(
        "INSERT INTO job_events (job_id, event_type, meta)"
        " SELECT %s, 'downloaded',"
        " jsonb_build_object('gateway_ok', true, 'gateway_ms', CASE WHEN n > 500 THEN 10 ELSE 9000 END)"
        " FROM generate_series(1, 1500) AS n",
        [job],
    )
    assert stats(environment)["gateway_seconds"] == {"calls": 1000, "p50": 0.01, "p95": 0.01, "p99": 0.01}


def test_the_screen_fits_80_columns_and_has_no_colour_in_a_pipe(conn: Conn, environment: Environment) -> None:
    codes = ["NOT_PDF", "TOO_LARGE", "GW_4XX", "GW_5XX", "GW_TIMEOUT", "IO_ERROR", "UNKNOWN"]
    for code in codes:
        make.insert_job(conn, "failed", error_code=code)
    convert(conn, 1234)
    make.insert_job(conn)
    conn.execute("UPDATE jobs SET queued_at = now() - interval '192.5 s' WHERE status = 'queued'")
    text = screen(environment)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "oldest waits for 3m1" in text
    assert "p50 1.2s" in text
    assert all(f"{code} 1" in text for code in codes)


def test_an_open_breaker_and_a_silent_server_are_seen_at_once(conn: Conn, environment: Environment) -> None:
    make.register_server(conn, last_heartbeat_at="yesterday")
    make.set_breaker(conn, "open", by_hand=True, probe_after=None)
    text = screen(environment)
    assert "by hand: the queue is held" in text
    assert "none active, 1 dead" in text


@pytest.mark.parametrize("meta", ['{"gateway_ok": true}', '{"gateway_ok": true, "gateway_ms": "soon"}'])
def test_a_call_that_another_program_wrote_without_its_time_is_not_counted(
    conn: Conn, environment: Environment, meta: str
) -> None:
    job_id = make.insert_job(conn, "complete")
    conn.execute("INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'complete', %s)", [job_id, meta])
    assert "gateway     no call yet" in screen(environment)
    convert(conn, 2000)
    assert stats(environment)["gateway_seconds"] == {"calls": 1, "p50": 2.0, "p95": 2.0, "p99": 2.0}
