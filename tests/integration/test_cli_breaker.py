"""`convertq breaker`: what it shows, and that a hand on it beats everything automatic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from convertq.queue.errors import Code, Failure

from tests import jobs as make
from tests.conftest import Dirs, Environment, Supervisor
from tests.jobs import Conn
from tests.processes import run
from tests.waiting import wait_for_row

KEYS = {
    "state", "by_hand", "opened_at", "open_seconds", "open_seconds_total", "next_probe_seconds", "probe_by",
    "trial_job", "calls", "failures", "window", "threshold", "last_failures",
    "gateway", "gateways", "max_calls", "running_calls", "most_calls", "limit_reason", "limit_since", "limit_seconds",
}  # fmt: skip


def breaker(environment: Environment, *words: str) -> dict[str, Any]:
    done = run("breaker", *words, "--json", environment=environment())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def said(environment: Environment, *words: str) -> str:
    done = run("breaker", *words, environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_closed_breaker_says_so(environment: Environment) -> None:
    found = breaker(environment)
    assert found.keys() == KEYS
    assert (found["state"], found["by_hand"], found["calls"]) == ("closed", False, 0)
    assert said(environment).splitlines()[0].split() == ["breaker", "closed"]


def test_an_open_one_says_since_when_and_why_and_when_it_is_probed(conn: Conn, environment: Environment) -> None:
    failure = Failure(Code.GW_5XX, "the gateway answered 503", called=True, gateway_status=503, gateway_ms=5)
    for _ in range(3):
        make.fail(conn, make.claimed(conn), failure)
    make.set_breaker(conn, "open", opened_at="now", probe_after="tomorrow")
    conn.execute(
        "UPDATE circuit_breaker SET opened_at = now() - interval '190 s', probe_after = now() + interval '90 s'"
    )
    text = said(environment)
    assert "open for 3m1" in text
    assert "probe     in 1m" in text
    assert "3 of the last 3 gateway calls failed (opens at 50% of 10 to 20)" in text  # from half a window on
    assert text.count("the gateway answered 503") == 3
    assert max(map(len, text.splitlines())) <= 80
    found = breaker(environment)
    assert (found["calls"], found["failures"]) == (3, 3)
    assert found["last_failures"][0].keys() == {"at", "job_id", "error_code", "error_message", "gateway_status"}
    assert found["last_failures"][0]["gateway_status"] == 503


def test_a_trial_under_way_is_named(conn: Conn, environment: Environment) -> None:
    job = make.insert_job(conn)
    make.set_breaker(conn, "half_open", trial_job=job, probe_after="tomorrow")
    assert f"job {job} is being tried" in said(environment)
    assert breaker(environment)["trial_job"] == str(job)


def test_opened_by_hand_nothing_is_claimed_and_nothing_is_probed(conn: Conn, environment: Environment) -> None:
    assert "convertq breaker close" in said(environment, "open")
    make.insert_job(conn)
    claim = make.try_claim(conn)
    job, state = claim.job, claim.state
    assert job is None
    assert (state.breaker, state.probe_is_due) == ("open", False)
    assert make.run(conn, "take_probe", gateway="default", holder=make.HOLDER, probe_timeout=1, cooldown_ms=0) == []
    assert "none, until" in said(environment)


def test_closed_by_hand_workers_claim_again_and_the_time_is_accounted(conn: Conn, environment: Environment) -> None:
    make.set_breaker(conn, "open", by_hand=True, probe_after=None)
    conn.execute("UPDATE circuit_breaker SET opened_at = now() - interval '60 s', open_seconds = 100")
    assert said(environment, "close").startswith("closed by hand after 1m0")
    now = make.breaker(conn)
    assert (now["state"], now["by_hand"], now["opened_at"]) == ("closed", False, None)
    assert 160 <= now["open_seconds"] < 220
    make.claimed(conn)


def test_closing_clears_the_window(conn: Conn, environment: Environment) -> None:
    make.fail(conn, make.claimed(conn))
    breaker(environment, "open")
    found = breaker(environment, "close")
    assert (found["calls"], found["last_failures"]) == (0, [])


@pytest.mark.parametrize(("word", "state"), [("open", "open"), ("close", "closed")])
def test_twice_is_as_good_as_once(conn: Conn, environment: Environment, word: str, state: str) -> None:
    breaker(environment, "open" if word == "close" else "close")
    assert breaker(environment, word)["changed"] is True
    before = make.breaker(conn)
    assert breaker(environment, word)["changed"] is False
    assert "nothing changed" in said(environment, word)
    assert make.breaker(conn) == before
    assert before["state"] == state


def test_opening_one_that_is_open_makes_it_by_hand_and_keeps_its_beginning(
    conn: Conn, environment: Environment
) -> None:
    make.set_breaker(conn, "open", opened_at="yesterday", probe_after="tomorrow", probe_by=make.HOLDER)
    before = make.breaker(conn)
    assert "it was open already" in said(environment, "open")
    now = make.breaker(conn)
    assert now["opened_at"] == before["opened_at"]
    assert (now["by_hand"], now["probe_after"], now["probe_by"]) == (True, None, None)


def test_a_trial_that_goes_well_does_not_close_what_a_hand_has_opened(conn: Conn, environment: Environment) -> None:
    make.set_breaker(conn, "half_open", probe_by=make.HOLDER, probe_after="tomorrow")
    job = make.claimed(conn)
    assert job.is_trial
    breaker(environment, "open")
    assert make.run(conn, "close_breaker", id=job.id) == []
    make.complete(conn, job)
    assert make.breaker(conn)["by_hand"] is True


def test_a_failure_does_not_take_the_hand_off(conn: Conn, environment: Environment) -> None:
    job = make.claimed(conn)
    breaker(environment, "open")
    make.fail(conn, job)
    assert make.run(conn, "trip_breaker", gateway="default", window=1, threshold=0.1, cooldown_ms=1) == []
    assert make.breaker(conn)["by_hand"] is True


def test_a_word_that_is_neither_is_wrong_usage(environment: Environment) -> None:
    assert run("breaker", "toggle", environment=environment()).returncode == 2


def test_a_real_queue_is_held_and_let_go(
    conn: Conn, dirs: Dirs, environment: Environment, supervisor: Supervisor
) -> None:
    breaker(environment, "open")
    process = supervisor()
    job = make.queued_job(conn, dirs)
    wait_for_row(
        conn,
        "SELECT pid FROM pg_stat_activity WHERE query LIKE '-- complete_and_claim%%' AND query_start > %s",
        [make.row_of(conn, job)["created_at"]],
    )
    assert make.status_of(conn, job) == "queued"
    breaker(environment, "close")
    process.wait_for_event("complete")
    assert make.row_of(conn, job)["attempt_count"] == 1
