"""`measure_load`: what an autoscaler needs to know of the queue, by gateway."""

from __future__ import annotations

from typing import Any

import pytest
from convertq.queue.scale import get_scale

from tests import jobs as make
from tests.jobs import Conn

SECONDS_PER_JOB = 12.0


@pytest.fixture
def measured(conn: Conn) -> None:
    """A server with four workers and a job that took twelve seconds; something without a duration beside it."""
    make.register_server(conn, concurrency=4)
    done = make.claimed(conn)
    meta = '{"gateway_ok": true, "duration_ms": 12000}'
    conn.execute("INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'retry', %s)", [done.id, meta])
    meta = '{"gateway_ok": true, "duration_ms": "long"}'
    conn.execute("INSERT INTO job_events (job_id, event_type, meta) VALUES (%s, 'retry', %s)", [done.id, meta])


def load(conn: Conn) -> dict[str, Any]:
    [row] = make.run(conn, "measure_load", soon=60, counted=1000, calls=100)
    return dict(row)


@pytest.mark.usefixtures("measured")
def test_what_runs_what_waits_and_what_is_due_soon_make_up_the_load(conn: Conn) -> None:
    make.insert_jobs(conn, 10)
    make.insert_job(conn, retry_after="tomorrow")
    make.insert_job(conn)
    conn.execute("UPDATE jobs SET retry_after = now() + interval '50 s' WHERE id = %s", [make.insert_job(conn)])
    found = load(conn)
    assert (found["running"], found["queued"], found["seconds"]) == (1, 12, SECONDS_PER_JOB)
    assert (found["breaker"], found["is_paused"], found["max_calls"], found["has_paused_jobs"]) == (
        "closed", False, None, False,
    )  # fmt: skip
    scale = get_scale(make.database(conn), make.config(SCALE_TARGET_SEC=60))
    assert scale == {
        "wanted_workers": 4,  # 1 + ceil(12 × 12 ÷ 60)
        "running_workers": 4,
        "queued": 12,
        "reason": "1 running, and 3 to finish 12 queued within 60 s",
    }
    conn.execute("UPDATE circuit_breaker SET max_calls = 2")
    assert get_scale(make.database(conn), make.config())["wanted_workers"] == 2


def test_what_holds_the_queue_is_known(conn: Conn) -> None:
    def wanted() -> int:
        return int(get_scale(make.database(conn), make.config())["wanted_workers"])

    assert wanted() == 0
    make.insert_job(conn, owner_session_id="anna")
    assert (wanted(), load(conn)["is_paused"]) == (1, False)
    conn.execute("INSERT INTO pauses (gateway, by) VALUES ('default', 'me')")
    assert (wanted(), load(conn)["is_paused"]) == (1, True)
    conn.execute("DELETE FROM pauses; INSERT INTO pauses (owner, by) VALUES ('anna', 'me')")
    conn.execute("UPDATE jobs SET retry_after = NULL")  # guard_job moves it out of the claim's index
    found = load(conn)
    assert (wanted(), found["queued"], found["is_paused"], found["has_paused_jobs"]) == (1, 0, False, True)
