"""How long jobs of a kind take, from the measured times. Where few were measured, more general times count too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

#: A kind's own times count as many jobs as were measured, those of the more general kind as many as this.
GENERAL_WEIGHT = 10
#: Measured times never look more certain than this: the standard deviation of their logarithm.
LEAST_SPREAD = 0.05
#: Beyond this share of all durations, the measured ones say nothing about how long an attempt still takes.
LAST_SHARE = 1 - 1e-6

_NORMAL = NormalDist()


class Kind(NamedTuple):
    gateway: str
    mapping: str
    size_class: int  # as the function size_class in sql/migrations computes it


class ServiceTime(NamedTuple):
    """A row of service_times: means over jobs. It is a log-normal duration, and for some jobs a retry before it."""

    weight: float  # how many jobs it counts as
    work_seconds: float  # of a worker, with all attempts
    log_seconds: float
    log_squares: float
    retried: float
    retry_seconds: float

    @property
    def spread(self) -> float:
        return max(math.sqrt(max(self.log_squares - self.log_seconds**2, 0.0)), LEAST_SPREAD)

    @property
    def work_variance(self) -> float:
        return self.work_seconds**2 * (math.exp(min(self.spread**2, 4.0)) - 1)

    @property
    def retry_delay_seconds(self) -> float:
        """How much later a job is done that is retried."""
        return self.retry_seconds / self.retried if self.retried else 0.0

    def share_done(self, seconds: float) -> float:
        """The share of jobs that are done so long after they were begun."""
        late = self._share_of_attempts(seconds - self.retry_delay_seconds)
        return (1 - self.retried) * self._share_of_attempts(seconds) + self.retried * late

    def _share_of_attempts(self, seconds: float) -> float:
        return _NORMAL.cdf((math.log(seconds) - self.log_seconds) / self.spread) if seconds > 0 else 0.0

    def seconds_left(self, share: float, elapsed_seconds: float = 0.0) -> float:
        """After so many more seconds, this share of the jobs that have taken `elapsed_seconds` so far is done."""
        done = self.share_done(elapsed_seconds)
        if done > LAST_SHARE:
            return elapsed_seconds * share / (1 - share)
        return _find(self, done + share * (1 - done)) - elapsed_seconds


@lru_cache(maxsize=4096)
def _find(service: ServiceTime, share: float) -> float:
    """After how many seconds this share is done, by bisection."""
    low, high = 0.0, math.exp(service.log_seconds + 6 * service.spread) + service.retry_delay_seconds
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if service.share_done(middle) < share else (low, middle)
    return high


#: What a job takes while nothing is measured: half of them two seconds or less.
DEFAULT = ServiceTime(GENERAL_WEIGHT, 3.0, math.log(2.0), math.log(2.0) ** 2 + 0.8, 0.0, 0.0)


class ServiceTimes:
    """Falls back from mapping and size to the mapping, from there to the gateway, and to the default at last."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._own: dict[tuple[str | int, ...], ServiceTime] = {}
        self._found: dict[tuple[str | int, ...], ServiceTime] = {(): DEFAULT}
        for row in rows:
            service = ServiceTime(*(row[name] for name in ServiceTime._fields))
            kind = Kind(row["gateway"], row["mapping"], row["size_class"])
            for length in (1, 2, 3):
                known = self._own.get(kind[:length])
                self._own[kind[:length]] = _together(known, service) if known else service

    def of(self, *kind: str | int) -> ServiceTime:
        """Of a gateway, of a mapping at a gateway, or of a class of sizes of that mapping."""
        if kind not in self._found:
            general, own = self.of(*kind[:-1])._replace(weight=GENERAL_WEIGHT), self._own.get(kind)
            self._found[kind] = _together(own, general) if own else general
        return self._found[kind]


def _together(one: ServiceTime, other: ServiceTime) -> ServiceTime:
    weight = one.weight + other.weight
    means = ((one.weight * a + other.weight * b) / weight for a, b in zip(one[1:], other[1:], strict=True))
    return ServiceTime(weight, *means)
