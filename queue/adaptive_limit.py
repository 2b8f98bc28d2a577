"""How many calls a gateway with `max_calls = "auto"` can bear, from how long its calls take and which it refuses.

The limit follows the gradient of the latency: the usual latency of a call, divided by what calls take now. Latencies
are compared within classes of file sizes, so that a few large files do not look like a slow gateway. While calls take
as long as usual, the limit grows; it doubles until it meets resistance for the first time. When they take longer, it
becomes smaller by as much, plus one call. Refused calls and timeouts reduce it at once, by a tenth to a half.

The usual latency is that of few simultaneous calls. While latency bounds the limit, fewer calls are allowed for a
moment now and then, and what they take is the usual latency from then on: otherwise a gateway that has become slower
for good would be taken for a busy one. A gateway that has become faster is noticed with every decision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

#: Below 8 KiB, then each up to twice as large, and the last for all larger ones.
SIZE_CLASSES = 12
SMALLEST_CLASS_BITS = 13

FIRST_LIMIT = 4.0
#: Latency may be so many times the usual one before the limit becomes smaller.
TOLERANCE = 1.05
#: One decision makes the limit smaller by this factor at most, and after a refused call at least by the second one.
MOST_DECREASE, LEAST_DECREASE = 0.5, 0.9
#: A limit of which less is used is not the reason for anything, and does not grow.
USED_SHARE = 0.75
#: After so many increases in a row, the increases become larger.
STEADY_INCREASES = 3
#: A decision needs at least so many calls, and as many as the limit. An unclear one waits for so many times as many.
LEAST_CALLS, MOST_ROUNDS = 10, 5
#: For how long a limit at which calls were refused is not tried again.
REFUSAL_SECONDS = 30.0
#: After refused calls made the limit smaller, so long it is not made smaller by others: reports are up to a second old,
#: and the hosts report at different times.
REPORT_SECONDS = 2.0
#: How often the usual latency is measured: not more often than after so many times the latency, and this time.
PROBE_EVERY_CALLS, PROBE_EVERY_SECONDS = 20, 30.0
PROBE_SHARE, PROBE_CALLS = 0.25, 2.0  # by so many, or so much, is the limit smaller then
#: The usual latency is known well enough when its standard error is below this share of it.
EXACT_SHARE = 0.03


class Reason(StrEnum):
    """Why the limit is what it is."""

    NEW = "new"  # no call is measured yet
    GROWING = "growing"
    WORKERS = "workers"  # it cannot grow: every worker may call
    LATENCY = "latency"
    REFUSED = "refused"


def size_class(size: int) -> int:
    return min((size >> SMALLEST_CLASS_BITS).bit_length(), SIZE_CLASSES - 1)


def _zeros() -> list[float]:
    return [0.0] * SIZE_CLASSES


@dataclass
class Sample:
    """Calls that have ended: by size class their number, the sum of their seconds, and the sum of the squares."""

    calls: list[float] = field(default_factory=_zeros)
    seconds: list[float] = field(default_factory=_zeros)
    squares: list[float] = field(default_factory=_zeros)
    refused: float = 0.0  # answers 429, 503 and those of `busy_status`, and timeouts

    def add(self, other: Sample, sign: int = 1) -> None:
        for mine, others in zip(self._columns, other._columns, strict=True):
            mine[:] = [a + sign * b for a, b in zip(mine, others, strict=True)]
        self.refused += sign * other.refused

    def add_call(self, size: int, seconds: float) -> None:
        at = size_class(size)
        self.calls[at] += 1
        self.seconds[at] += seconds
        self.squares[at] += seconds * seconds

    @property
    def _columns(self) -> tuple[list[float], list[float], list[float]]:
        return self.calls, self.seconds, self.squares

    @property
    def answered(self) -> float:
        return sum(self.calls)

    @property
    def ended(self) -> float:
        return self.answered + self.refused

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / self.answered if self.answered else 0.0

    def mean(self, at: int) -> float:
        return self.seconds[at] / self.calls[at]

    def squared_error(self, at: int) -> float:
        """Of the sum of the seconds of this class."""
        return max(self.squares[at] - self.seconds[at] ** 2 / self.calls[at], 0.0)

    @classmethod
    def from_row(cls, numbers: Sequence[float]) -> Self:
        """From `numbers`, which is how it is kept in shared memory and in the database."""
        calls, seconds, squares = (
            list(numbers[at : at + SIZE_CLASSES]) for at in range(0, 3 * SIZE_CLASSES, SIZE_CLASSES)
        )
        return cls(calls, seconds, squares, numbers[-1])

    @property
    def numbers(self) -> list[float]:
        return [*self.calls, *self.seconds, *self.squares, self.refused]


#: How many numbers a sample has.
SAMPLE_NUMBERS = 3 * SIZE_CLASSES + 1


@dataclass
class AdaptiveLimit:
    """Everything that the next decision needs to know. It is kept in the database, as JSON."""

    limit: float = FIRST_LIMIT
    usual: list[float] = field(default_factory=_zeros)  # seconds of a call by size class; 0: not known
    pending: Sample = field(default_factory=Sample)  # since the last decision
    unsettled: float = 0.0  # calls that began before the last change and have not ended
    increases: int = 0  # in a row
    doubles: bool = True  # it has met no resistance yet
    refused_limit: float = math.inf  # at which calls were refused last
    refused_at: float = -math.inf
    limit_before_probe: float | None = None  # while the usual latency is being measured
    measured_at: float = -math.inf  # when the usual latency was, and at which limit
    measured_limit: float = 0.0
    reason: Reason = Reason.NEW
    ratio: float = 1.0  # the latency at the last resistance, divided by the usual one
    refused: float = 0.0  # calls, while that is the reason

    @property
    def max_calls(self) -> int:
        return max(1, int(self.limit))

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        return cls(**{**state, "pending": Sample(**state["pending"]), "reason": Reason(state["reason"])})

    def dump(self) -> dict[str, Any]:
        """JSON has no infinity: what was never is left out."""
        return {name: value for name, value in asdict(self).items() if value not in (math.inf, -math.inf)}

    def decide(self, sample: Sample, *, in_use: int, most: int, now: float) -> None:
        """`sample` is what has ended since the last call, `in_use` how many calls are under way, `most` the largest
        limit that makes sense, `now` the time in seconds."""
        before = self.max_calls
        self.limit = min(self.limit, most)
        if self._is_settled(sample):
            self.pending.add(sample)
            if now - self.refused_at < REPORT_SECONDS:
                self.pending.refused = 0
            if self.pending.refused:
                self._back_off(in_use, now)
            elif self.pending.answered >= self._needed_calls:
                self._follow_latency(in_use, most, now)
        if self.max_calls != before:
            self.unsettled = in_use
            self.pending = Sample()

    def _is_settled(self, sample: Sample) -> bool:
        """Calls that began before the last change say nothing about it; among many others they do not matter."""
        unsettled, self.unsettled = self.unsettled, max(0.0, self.unsettled - sample.ended)
        return sample.ended >= 3 * unsettled

    @property
    def _needed_calls(self) -> float:
        return max(LEAST_CALLS, self.max_calls)

    # -- refused calls --

    def _back_off(self, in_use: int, now: float) -> None:
        share = self.pending.refused / self.pending.ended
        used = max(1.0, min(self.limit, in_use))
        self.refused = self.pending.refused + (self.refused if self.reason is Reason.REFUSED else 0)
        self.refused_limit, self.refused_at = used, now
        self._resist(Reason.REFUSED)
        self.limit = max(1.0, used * max(MOST_DECREASE, min(LEAST_DECREASE, 1 - share)))
        self.limit_before_probe = None
        self.pending = Sample()

    # -- latency --

    def _follow_latency(self, in_use: int, most: int, now: float) -> None:
        ratio, error = self._compare(now)
        is_exact = error < EXACT_SHARE * ratio or self.pending.answered >= MOST_ROUNDS * self._needed_calls
        if self.limit_before_probe is not None:
            if is_exact:
                self._end_probe(ratio, now)
        elif ratio <= TOLERANCE:
            if ratio + 3 * error < 1 / TOLERANCE:
                self.usual = [seconds * ratio for seconds in self.usual]
            self._increase(in_use, most, now)
        elif ratio - error > TOLERANCE:
            self._decrease(ratio, now)
        elif is_exact:
            self.pending = Sample()

    def _compare(self, now: float) -> tuple[float, float]:
        """The latency divided by the usual one, and the standard error of that. A size that is new is learned."""
        seen = [at for at in range(SIZE_CLASSES) if self.pending.calls[at]]
        known = [at for at in seen if self.usual[at]]
        if not any(self.usual):
            self.measured_at, self.measured_limit = now, self.limit
        expected = sum(self.pending.calls[at] * self.usual[at] for at in known)
        ratio = sum(self.pending.seconds[at] for at in known) / expected if known else 1.0
        for at in set(seen) - set(known):
            self.usual[at] = max(self.pending.mean(at), 1e-6) / max(ratio, 1.0)
            expected += self.pending.calls[at] * self.usual[at]
        error = math.sqrt(sum(self.pending.squared_error(at) for at in seen)) / expected
        return ratio, error

    def _increase(self, in_use: int, most: int, now: float) -> None:
        self.pending = Sample()
        if self.limit >= most:
            self.reason = Reason.WORKERS
        if self.limit >= most or in_use < USED_SHARE * self.max_calls:
            return
        wanted = min(self.limit + self._step, most)
        if now - self.refused_at < REFUSAL_SECONDS:
            wanted = min(wanted, self.refused_limit - 1)
        if wanted <= self.limit:
            self.increases = 0
            return
        self.limit = wanted
        self.increases += 1
        if self.reason is Reason.NEW or self.increases >= STEADY_INCREASES:
            self.reason = Reason.GROWING

    @property
    def _step(self) -> float:
        if self.doubles:
            return self.limit
        return max(1.0, min(2.0 ** (self.increases + 1 - STEADY_INCREASES), self.limit / 2))

    def _decrease(self, ratio: float, now: float) -> None:
        self._resist(Reason.LATENCY)
        self.ratio = ratio
        if self.max_calls == 1 or self.limit <= self.measured_limit / 2:
            self._remeasure(ratio, now)  # so many fewer calls take no less time: this is the usual latency now
        elif self._is_probe_due(now):
            self.limit_before_probe = self.limit
            self.limit = max(1.0, self.limit - max(PROBE_CALLS, PROBE_SHARE * self.limit))
        else:
            self.limit = min(self.limit, self.limit * max(MOST_DECREASE, TOLERANCE / ratio) + 1)
        self.pending = Sample()

    def _resist(self, reason: Reason) -> None:
        self.increases, self.doubles, self.reason = 0, False, reason

    def _is_probe_due(self, now: float) -> bool:
        pause = max(PROBE_EVERY_SECONDS, PROBE_EVERY_CALLS * self.pending.mean_seconds)
        return now - self.measured_at > pause

    def _end_probe(self, ratio: float, now: float) -> None:
        self.limit, self.limit_before_probe = self.limit_before_probe or self.limit, None
        self._remeasure(ratio, now)

    def _remeasure(self, ratio: float, now: float) -> None:
        for at in range(SIZE_CLASSES):
            is_seen = self.pending.calls[at] >= LEAST_CALLS
            self.usual[at] = max(self.pending.mean(at), 1e-6) if is_seen else self.usual[at] * ratio
        self.measured_at, self.measured_limit = now, self.limit
        self.pending = Sample()
