"""What estimates are made from: measured times and their fall-backs, the wait, retries and interruptions."""

from __future__ import annotations

import math

import pytest
from convertq.queue.forecast import Ahead, Forecast, Interruptions, Wait, forecast_running, forecast_waiting
from convertq.queue.service_times import DEFAULT, GENERAL_WEIGHT, Kind, ServiceTime, ServiceTimes

NONE = Interruptions()


def service(seconds: float, spread: float = 0.5, weight: float = 500, **columns: float) -> ServiceTime:
    mean = math.log(seconds)
    known = {"retried": 0.0, "retry_seconds": 0.0, **columns}
    return ServiceTime(weight, seconds * math.exp(spread**2 / 2), mean, mean**2 + spread**2, **known)


def row(kind: Kind, of: ServiceTime) -> dict[str, object]:
    return {**kind._asdict(), **of._asdict()}


def test_half_are_done_by_the_median_and_nine_of_ten_by_the_late_time() -> None:
    one = service(2.0, 0.5)
    assert one.seconds_left(0.5) == pytest.approx(2.0, rel=0.01)
    assert one.seconds_left(0.9) == pytest.approx(2.0 * math.exp(1.2816 * 0.5), rel=0.01)


def test_a_retry_that_one_in_five_needs_is_in_the_late_time_only() -> None:
    one = service(2.0, 0.1, retried=0.2, retry_seconds=0.2 * 30)
    assert one.retry_delay_seconds == pytest.approx(30)
    assert one.seconds_left(0.5) < 3
    assert one.seconds_left(0.9) > 30


def test_what_has_taken_long_takes_longer() -> None:
    one = service(2.0, 0.5)
    assert one.seconds_left(0.5, 1.0) < 2.0
    assert one.seconds_left(0.5, 6.0) > 0
    assert one.seconds_left(0.9, 10_000.0) == pytest.approx(90_000)


def test_times_fall_back_from_size_to_mapping_to_gateway_to_the_default() -> None:
    big, small = Kind("default", "a", 20), Kind("default", "a", 10)
    times = ServiceTimes([row(big, service(60, weight=500)), row(small, service(1, weight=500))])
    assert times.of(*big).seconds_left(0.5) == pytest.approx(60, rel=0.2)
    assert times.of(*small).seconds_left(0.5) == pytest.approx(1, rel=0.2)
    of_mapping = times.of("default", "a")
    assert times.of("default", "a", 15)[1:] == of_mapping[1:]
    assert times.of("default", "b")[1:] == times.of("default")[1:]
    assert times.of("other", "b", 3)[1:] == DEFAULT[1:]


def test_few_measured_jobs_count_little() -> None:
    many, one = Kind("default", "a", 10), Kind("default", "a", 11)
    times = ServiceTimes([row(many, service(1, weight=500)), row(one, service(100, weight=1))])
    assert times.of(*one).seconds_left(0.5) < 100**0.2
    assert times.of(*one).weight == 1 + GENERAL_WEIGHT


def wait_behind(jobs: int, workers: int, running: int) -> Wait:
    kind = Kind("default", "a", 10)
    ahead = Ahead(ServiceTimes([row(kind, service(1, 0.05, weight=1e6))]))
    ahead.add(kind, jobs)
    route = kind.gateway
    return Wait.for_place(jobs, running, ahead.seconds[route], ahead.variance[route], workers, 1.0)


def test_a_free_worker_takes_a_job_at_once_and_busy_ones_share_what_is_before_it() -> None:
    assert wait_behind(1, workers=4, running=2).seconds == 0
    assert wait_behind(99, workers=4, running=4).seconds == pytest.approx(25, rel=0.01)
    assert wait_behind(99, workers=1, running=1).seconds == pytest.approx(100, rel=0.01)


def test_the_spread_of_the_wait_and_of_its_own_time_are_in_the_late_time() -> None:
    alone = forecast_waiting(service(1), Wait(0, 0), NONE)
    behind = forecast_waiting(service(1), Wait(100, 25), NONE)
    assert behind.start == 100
    assert behind.median == pytest.approx(100 + alone.median)
    assert behind.late - behind.median > alone.late - alone.median
    assert forecast_running(service(1), 0.5) == Forecast(
        -0.5, service(1).seconds_left(0.5, 0.5), service(1).seconds_left(0.9, 0.5)
    )


def test_interruptions_count_when_they_are_likely_enough() -> None:
    once_a_day, often = Interruptions(1, 600), Interruptions(100, 6000)
    assert once_a_day.expected_seconds(600, 0.9) == 0
    assert once_a_day.expected_seconds(4 * 3600, 0.9) == 600
    assert once_a_day.expected_seconds(4 * 3600, 0.5) == 0
    assert often.expected_seconds(864, 0.5) == 60
    assert often.expected_seconds(864, 0.9) == 120
    assert often.expected_seconds(1e9, 0.9) == 6000
