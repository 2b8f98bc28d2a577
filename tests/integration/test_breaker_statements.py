"""The breaker: when it opens, who probes, what one trial decides, and that its time is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from convertq.queue.breaker import Breaker
from convertq.queue.errors import Code, Failure
from convertq.queue.job import ClaimedJob
from convertq.queue.job_queue import JobQueue
from convertq.queue.log.lines import Log
from convertq.queue.outcome import Failed, RetryLater

from tests import gateway_behaviours as answers
from tests.conftest import Connect
from tests.jobs import (
    HOLDER,
    SERVER,
    Conn,
    breaker,
    claim,
    claimed,
    client_of,
    complete,
    config,
    expire_lease,
    fail,
    insert_job,
    one,
    open_database,
    queue,
    register_server,
    retry_later,
    row_of,
    run,
    set_breaker,
    set_status,
    together,
    try_claim,
)
from tests.stand_in_gateway import StandInGateway

OTHER = f"{SERVER}/2"
DEFAULT = {"gateway": "default"}
BAD = Failure(Code.GW_5XX, "x", called=True)


def calls(conn: Conn, *went_well: bool) -> None:
    """Gateway calls on record, oldest first."""
    job = insert_job(conn, "failed")
    for ok in went_well:
        conn.execute(
            "INSERT INTO job_events (job_id, event_type, meta) "
            "VALUES (%s, 'retry', jsonb_build_object('gateway_ok', %s::boolean))",
            [job, ok],
        )


def trip(conn: Conn, window: int = 20, threshold: float = 0.5, cooldown_ms: int = 30_000) -> dict[str, int] | None:
    rows = run(conn, "trip_breaker", **DEFAULT, window=window, threshold=threshold, cooldown_ms=cooldown_ms)
    return rows[0] if rows else None


def mix(failures: int, successes: int) -> Sequence[bool]:
    return [False] * failures + [True] * successes


@pytest.mark.parametrize(
    ("failures", "successes", "window", "threshold", "opens"),
    [
        (5, 5, 20, 0.5, True),
        (4, 6, 20, 0.5, False),
        (9, 0, 20, 0.5, False),  # one under half the window
        (10, 0, 20, 0.5, True),
        (3, 0, 5, 1.0, True),  # half of five, rounded up
        (2, 0, 5, 1.0, False),
        (1, 0, 1, 1.0, True),
        (0, 20, 20, 0.01, False),
        (11, 9, 20, 0.55, True),  # 0.55 * 20 is a little over 11 in binary
        (7, 18, 25, 0.28, True),
        (10, 9, 20, 0.55, False),
        (0, 0, 20, 0.5, False),
    ],
)
def test_it_opens_at_exactly_the_threshold(
    conn: Conn, failures: int, successes: int, window: int, threshold: float, opens: bool
) -> None:
    calls(conn, *mix(failures, successes))
    expected = {"failures": failures, "calls": failures + successes} if opens else None
    assert trip(conn, window, threshold) == expected
    assert breaker(conn)["state"] == ("open" if opens else "closed")


def test_only_the_last_calls_count(conn: Conn) -> None:
    calls(conn, *mix(10, 0), *mix(0, 4))
    assert trip(conn, window=4) is None
    calls(conn, False, False)
    assert trip(conn, window=4) == {"failures": 2, "calls": 4}


def test_events_without_a_call_do_not_count(conn: Conn) -> None:
    calls(conn, *mix(1, 0))
    for _ in range(5):
        insert_job(conn)
    assert trip(conn, window=4) is None


def test_an_opening_waits_for_its_cooldown(conn: Conn) -> None:
    calls(conn, *mix(10, 0))
    trip(conn, cooldown_ms=60_000)
    row = breaker(conn)
    assert (row["by_hand"], row["probe_by"], row["trial_job"]) == (False, None, None)
    assert one(conn, "SELECT probe_after - opened_at = '60 s' AND cooldown = '60 s' AS held FROM circuit_breaker")[
        "held"
    ]


@pytest.mark.parametrize("state", ["open", "half_open"])
def test_it_does_not_open_twice(conn: Conn, state: str) -> None:
    calls(conn, *mix(10, 0))
    set_breaker(conn, state)
    before = breaker(conn)
    assert trip(conn) is None
    assert breaker(conn) == before


# -- the probe --


def take_probe(conn: Conn, holder: str = HOLDER) -> list[bool]:
    return [
        row["is_mine"]
        for row in run(conn, "take_probe", **DEFAULT, holder=holder, probe_timeout=10, cooldown_ms=30_000)
    ]


def settle_probe(conn: Conn, healthy: bool, holder: str = HOLDER) -> list[str]:
    return [
        row["state"] for row in run(conn, "settle_probe", **DEFAULT, holder=holder, healthy=healthy, cooldown_ms=30_000)
    ]


def test_one_worker_of_all_probes(conn: Conn, connect: Connect) -> None:
    for _ in range(10):
        set_breaker(conn, "open", probe_after="yesterday")
        here, there = connect(), connect()
        taken = together(lambda: take_probe(here), lambda: take_probe(there, OTHER))  # noqa: B023
        assert sorted(taken, key=str) == [[True], []]


@pytest.mark.parametrize(
    "columns",
    [{"probe_after": "tomorrow"}, {"probe_after": "yesterday", "by_hand": True}],
)
def test_nobody_probes_before_its_time_or_what_was_opened_by_hand(conn: Conn, columns: dict[str, object]) -> None:
    set_breaker(conn, "open", **columns)
    assert take_probe(conn) == []


def test_nobody_probes_a_closed_breaker(conn: Conn) -> None:
    set_breaker(conn, "closed", probe_after="yesterday")
    assert take_probe(conn) == []


def test_a_probe_whose_worker_died_is_taken_over(conn: Conn) -> None:
    set_breaker(conn, "open", probe_after="yesterday")
    assert take_probe(conn) == [True]
    assert take_probe(conn, OTHER) == []
    conn.execute("UPDATE circuit_breaker SET probe_after = 'yesterday'")
    assert take_probe(conn, OTHER) == [True]
    assert settle_probe(conn, healthy=True) == []
    assert settle_probe(conn, healthy=True, holder=OTHER) == ["half_open"]


def test_a_bad_answer_leaves_it_open_for_another_cooldown(conn: Conn) -> None:
    set_breaker(conn, "open", probe_after="yesterday")
    take_probe(conn)
    assert settle_probe(conn, healthy=False) == ["open"]
    assert breaker(conn)["probe_by"] is None
    assert take_probe(conn, OTHER) == []


def test_a_hand_that_closed_it_meanwhile_wins_over_the_probe(conn: Conn) -> None:
    set_breaker(conn, "open", probe_after="yesterday")
    take_probe(conn)
    set_breaker(conn, "closed")
    assert settle_probe(conn, healthy=True) == []
    assert breaker(conn)["state"] == "closed"


def test_a_hand_that_opened_it_meanwhile_wins_over_the_probe(conn: Conn) -> None:
    set_breaker(conn, "open", probe_after="yesterday")
    take_probe(conn)
    conn.execute("UPDATE circuit_breaker SET by_hand = true")
    assert settle_probe(conn, healthy=True) == []
    assert breaker(conn)["state"] == "open"


def test_nothing_to_try_within_the_cooldown_opens_it_again(conn: Conn) -> None:
    set_breaker(conn, "half_open", probe_by=HOLDER, probe_after="yesterday")
    assert take_probe(conn, OTHER) == [False]
    assert (breaker(conn)["state"], breaker(conn)["probe_by"]) == ("open", None)
    assert take_probe(conn, OTHER) == []


# -- the trial --


def trial(conn: Conn, **columns: object) -> ClaimedJob:
    insert_job(conn, **columns)
    set_breaker(conn, "half_open", probe_by=HOLDER, opened_at="2020-01-01", cooldown="60 s")
    job = claim(conn)
    assert job.is_trial
    return job


def test_its_success_closes_the_breaker_and_counts_the_time(conn: Conn) -> None:
    conn.execute("UPDATE circuit_breaker SET open_seconds = 5")
    job = trial(conn)
    complete(conn, job)
    assert breaker(conn)["state"] == "half_open"
    [closed] = run(conn, "close_breaker", id=job.id)
    row = breaker(conn)
    assert (row["state"], row["opened_at"], row["trial_job"], row["probe_by"]) == ("closed", None, None, None)
    assert row["open_seconds"] == pytest.approx(closed["seconds"] + 5)
    assert closed["seconds"] > 0


def test_closing_clears_the_window(conn: Conn) -> None:
    calls(conn, *mix(20, 0))
    job = trial(conn)
    complete(conn, job)
    run(conn, "close_breaker", id=job.id)
    calls(conn, *mix(9, 0))
    assert trip(conn) is None
    calls(conn, False)
    assert trip(conn) == {"failures": 10, "calls": 10}


@pytest.mark.parametrize("ending", ["retry", "fail", "reclaim", "given up", "requeue", "release", "another program"])
def test_any_other_end_of_the_trial_opens_it_again(conn: Conn, ending: str) -> None:
    job = trial(conn, attempt_count=2 if ending == "given up" else 0)
    match ending:
        case "retry":
            retry_later(conn, job)
        case "fail":
            fail(conn, job, BAD)
        case "reclaim" | "given up":
            expire_lease(conn, job)
            queue(conn).reclaim_jobs()
        case "requeue":
            queue(conn).requeue_worker_jobs(HOLDER, counted=True, reason="worker died")
        case "release":
            queue(conn).requeue_job(job, "shutdown")
        case _:
            set_status(conn, job.id, "queued")
    row = breaker(conn)
    assert (row["state"], row["trial_job"], row["probe_by"], row["opened_at"].year) == (
        "open",
        None,
        None,
        2020,
    )
    assert one(conn, "SELECT probe_after > now() + interval '50 s' AS held FROM circuit_breaker")["held"]


def test_another_jobs_end_does_not_touch_the_trial(conn: Conn) -> None:
    other = claimed(conn)
    job = trial(conn)
    fail(conn, other)
    assert (breaker(conn)["state"], breaker(conn)["trial_job"]) == ("half_open", job.id)
    assert run(conn, "close_breaker", id=other.id) == []


def test_a_trial_that_comes_too_late_closes_nothing(conn: Conn) -> None:
    job = trial(conn)
    set_breaker(conn, "open", by_hand=True)
    complete(conn, job)
    assert run(conn, "close_breaker", id=job.id) == []
    assert breaker(conn)["state"] == "open"


# -- the breaker as a worker meets it --


def answer_of(gateway: StandInGateway) -> Callable[[], bool]:
    return lambda: client_of(config(GATEWAY_URL=gateway.url)).is_healthy(5)


def a_breaker(gateway_url: str = "http://gateway.invalid", **settings: object) -> Breaker:
    chosen = config(GATEWAY_URL=gateway_url, **settings)
    return Breaker(chosen, Log(chosen))


def test_a_failed_call_is_weighed_in_the_transaction_that_records_it(database_url: str, conn: Conn) -> None:
    calls(conn, *mix(9, 0))
    job = claimed(conn)
    with open_database(database_url) as database, a_breaker().recording(database, job, BAD):
        assert JobQueue(database, config()).schedule_retry(job, RetryLater(BAD, 0))
        assert breaker(conn)["state"] == "closed"
    assert breaker(conn)["state"] == "open"
    assert row_of(conn, job)["status"] == "queued"


def test_a_refused_file_is_a_good_answer_of_the_trial(database_url: str, conn: Conn) -> None:
    job = trial(conn)
    refused = Failure(Code.GW_4XX, "x", called=True)
    with open_database(database_url) as database, a_breaker().recording(database, job, refused):
        JobQueue(database, config()).fail_job(job, Failed(refused, dead_letter=False))
    assert breaker(conn)["state"] == "closed"


def test_two_last_failures_at_once_open_it_once(conn: Conn, database_url: str) -> None:
    calls(conn, *mix(8, 0))
    jobs = [claimed(conn), claimed(conn)]

    def record(job: ClaimedJob) -> None:
        with open_database(database_url) as database, a_breaker().recording(database, job, BAD):
            JobQueue(database, config()).schedule_retry(job, RetryLater(BAD, 0))

    assert together(*[lambda job=job: record(job) for job in jobs]) == [None, None]
    assert breaker(conn)["state"] == "open"


@pytest.mark.parametrize(
    ("health", "state"),
    [(answers.status(200), "half_open"), (answers.status(404), "half_open"), (answers.status(503), "open")],
)
def test_a_worker_probes_the_gateway_and_settles_it(
    conn: Conn, database_url: str, gateway: StandInGateway, health: answers.Behaviour, state: str
) -> None:
    set_breaker(conn, "open", probe_after="yesterday")
    gateway.health = health
    with open_database(database_url) as database:
        assert a_breaker(gateway.url).probe(database, "default", HOLDER, answer_of(gateway)) is (state == "half_open")
    assert breaker(conn)["state"] == state
    assert len(gateway.probes) == 1


def test_a_worker_that_may_not_probe_asks_nobody(conn: Conn, database_url: str, gateway: StandInGateway) -> None:
    set_breaker(conn, "open", probe_after="tomorrow")
    with open_database(database_url) as database:
        assert not a_breaker(gateway.url).probe(database, "default", HOLDER, answer_of(gateway))
    assert gateway.probes == []


def test_opened_by_hand_it_stays_open(conn: Conn) -> None:
    insert_job(conn)
    register_server(conn)
    set_breaker(conn, "open", by_hand=True, probe_after="yesterday")
    claim = try_claim(conn)
    job, state = claim.job, claim.state
    assert (job, state.probe_is_due, take_probe(conn)) == (None, False, [])
