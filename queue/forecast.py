"""When a job will probably be done: the wait for the jobs before it, its own time, and what may come in between.

Everything is in seconds from now, without the factors that were learned from earlier estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from convertq.queue.service_times import Kind, ServiceTime, ServiceTimes

MEDIAN, LATE = 0.5, 0.9
#: So many standard deviations above the mean, a normal distribution has a tenth of its values.
LATE_DEVIATIONS = 1.2816
#: How wrong the measured throughput may be in the next minutes: the standard deviation, as a share of the wait.
THROUGHPUT_SPREAD = 0.1
DAY_SECONDS = 86400.0


class Forecast(NamedTuple):
    start: float
    median: float  # half of such jobs are done by then
    late: float  # nine of ten are


@dataclass
class Ahead:
    """The jobs that are claimed before a job, by route."""

    times: ServiceTimes
    jobs: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # of workers' time
    variance: dict[str, float] = field(default_factory=dict)

    def add(self, kind: Kind, jobs: int) -> None:
        self._add(kind.gateway, self.times.of(*kind), jobs)

    def add_any(self, route: str, jobs: int) -> None:
        """Jobs of which only the gateway is known."""
        self._add(route, self.times.of(route), jobs)

    def _add(self, route: str, service: ServiceTime, jobs: int) -> None:
        self.jobs[route] = self.jobs.get(route, 0) + jobs
        self.seconds[route] = self.seconds.get(route, 0.0) + jobs * service.work_seconds
        self.variance[route] = self.variance.get(route, 0.0) + jobs * service.work_variance

    def copy(self) -> Ahead:
        return Ahead(self.times, dict(self.jobs), dict(self.seconds), dict(self.variance))


class Wait(NamedTuple):
    seconds: float
    variance: float

    @classmethod
    def for_place(cls, jobs: int, running: int, seconds: float, variance: float, places: int, mean: float) -> Wait:
        """The time until one of so many places is free for a job. All of them work on what is before it; on average
        the first one is free after one place's share of a job."""
        if running + jobs < places:
            return cls(0.0, 0.0)
        return cls((seconds + mean) / places, (variance + mean**2) / places**2)


@dataclass(frozen=True)
class Interruptions:
    """How often a gateway was down or paused within a day, and for how long in all."""

    number: int = 0
    seconds: float = 0.0

    def expected_seconds(self, horizon_seconds: float, share: float) -> float:
        """With this probability, interruptions take no longer than this in the time ahead. Their number has a Poisson
        distribution, and each takes as long as they did on average."""
        if not self.number:
            return 0.0
        mean = self.number * horizon_seconds / DAY_SECONDS
        number, chance = 0, math.exp(-mean)
        covered = chance
        while covered < share and number < self.number:
            number += 1
            chance *= mean / number
            covered += chance
        return number * self.seconds / self.number


def forecast_waiting(service: ServiceTime, wait: Wait, interruptions: Interruptions) -> Forecast:
    """Of a job that may be claimed when those before it are."""
    median = wait.seconds + service.seconds_left(MEDIAN)
    own_spread = service.seconds_left(LATE) - service.seconds_left(MEDIAN)
    wait_spread = LATE_DEVIATIONS * math.sqrt(wait.variance + (THROUGHPUT_SPREAD * wait.seconds) ** 2)
    late = median + math.hypot(own_spread, wait_spread)
    return Forecast(
        wait.seconds,
        median + interruptions.expected_seconds(median, MEDIAN),
        late + interruptions.expected_seconds(late, LATE),
    )


def forecast_running(service: ServiceTime, elapsed_seconds: float) -> Forecast:
    """Of a job whose attempt was begun so long ago."""
    return Forecast(
        -elapsed_seconds,
        service.seconds_left(MEDIAN, elapsed_seconds),
        service.seconds_left(LATE, elapsed_seconds),
    )
