"""The adaptive limit against a simulated gateway: a second at a time, with the same random numbers in every run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from convertq.queue.adaptive_limit import SIZE_CLASSES, AdaptiveLimit, Reason, Sample, size_class
from convertq.queue.limits import describe_reason

WORKERS = 64


@dataclass
class Gateway:
    """It converts `capacity` files at a time as quickly as one, and more of them more slowly. More than `room` calls
    are refused."""

    capacity: float = 12
    seconds: float = 0.1
    room: int = 1_000
    sizes: Sequence[int] = (20_000,)
    noise: float = 0.2
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    owed: float = 0.0

    def run(self, calls: int) -> Sample:
        """What ends within a second, with so many calls at a time."""
        latency = self.seconds * max(1.0, calls / self.capacity)
        self.owed += calls / latency
        sample = Sample()
        while self.owed >= 1:
            self.owed -= 1
            size = self.dice.choice(self.sizes)
            if self.dice.random() < 1 - self.room / calls:
                sample.refused += 1
            else:
                work = (size / 20_000) ** 0.8 * self.dice.lognormvariate(0, self.noise)
                sample.add_call(size, latency * work)
        return sample


class Run:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway, self.limit, self.now, self.limits = gateway, AdaptiveLimit(), 1_000.0, [0]

    def go_on(self, seconds: int, used: Callable[[int], int] = lambda limit: limit) -> list[int]:
        """The limits of these seconds. The state is stored between two decisions, as in the database."""
        for _ in range(seconds):
            self.limit = AdaptiveLimit.load(json.loads(json.dumps(self.limit.dump(), allow_nan=False)))
            calls = used(self.limit.max_calls)
            self.limit.decide(self.gateway.run(calls), in_use=calls, most=WORKERS, now=self.now)
            self.now += 1
            self.limits.append(self.limit.max_calls)
        return self.limits[-seconds:]


@pytest.mark.parametrize(
    "gateway",
    [
        Gateway(),
        Gateway(noise=0.5),
        Gateway(sizes=(3_000, 20_000, 300_000, 2_000_000), noise=0.3),
        Gateway(seconds=1.0),
    ],
    ids=["plain", "noisy", "sizes", "slow"],
)
def test_it_settles_at_what_the_gateway_converts_at_a_time(gateway: Gateway) -> None:
    run = Run(gateway)
    run.go_on(60)
    assert 9 <= sorted(run.go_on(120))[60] <= 15
    assert run.limit.reason is Reason.LATENCY


def test_it_grows_to_the_number_of_workers_if_the_gateway_can_bear_them() -> None:
    run = Run(Gateway(capacity=1_000))
    assert run.go_on(8)[-1] == WORKERS
    run.go_on(1)
    assert run.limit.reason is Reason.WORKERS


@pytest.mark.parametrize("capacity", [24, 6])
def test_it_follows_a_gateway_that_can_bear_more_or_less(capacity: float) -> None:
    run = Run(Gateway())
    run.go_on(60)
    run.gateway.capacity = capacity
    run.go_on(20)
    assert abs(run.go_on(10)[5] - capacity) <= 4


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_gateway_that_is_faster_or_slower_for_good_gets_as_many_calls_as_before(factor: float) -> None:
    run = Run(Gateway())
    run.go_on(60)
    run.gateway.seconds *= factor
    run.go_on(60)
    assert 10 <= sorted(run.go_on(31))[15] <= 16


def test_larger_files_do_not_look_like_a_slow_gateway() -> None:
    run = Run(Gateway(capacity=1_000, sizes=(20_000,)))
    run.go_on(10)
    run.gateway.sizes = (20_000, 2_000_000)
    assert min(run.go_on(30)) == WORKERS


def test_refused_calls_make_it_smaller_and_it_stays_below_what_was_refused() -> None:
    run = Run(Gateway(capacity=1_000, room=12, noise=0.05))
    run.go_on(10)
    found = run.go_on(100)
    assert 11 <= min(found) <= 12
    assert sum(limit > 12 for limit in found) <= 5, "it tries again now and then"


def test_after_many_refused_calls_it_is_half_and_never_less_than_one() -> None:
    limit = AdaptiveLimit(limit=20)
    limit.decide(Sample(refused=50), in_use=20, most=WORKERS, now=0)
    assert (limit.max_calls, limit.reason) == (10, Reason.REFUSED)
    assert describe_reason(limit.reason, limit.ratio, limit.refused) == "50 calls refused or timed out"
    limit.decide(Sample(refused=20), in_use=10, most=WORKERS, now=1)
    assert limit.max_calls == 10, "these calls began before the limit was lower"
    for second in range(2, 199):
        limit.decide(Sample(refused=99), in_use=limit.max_calls, most=WORKERS, now=second)
    assert limit.max_calls == 1


def test_a_limit_that_is_not_used_does_not_grow_and_fewer_workers_bound_it() -> None:
    run = Run(Gateway())
    run.go_on(20, used=lambda limit: 2)
    assert run.limits[-1] == 4
    run.limit.decide(Sample(), in_use=0, most=3, now=run.now)
    assert run.limit.max_calls == 3


def test_sizes_have_classes_and_samples_a_flat_form() -> None:
    assert [size_class(size) for size in (0, 8191, 8192, 16_384, 2**23 - 1, 2**23, 2**40)] == [0, 0, 1, 2, 10, 11, 11]
    sample = Sample(refused=2)
    sample.add_call(9_000, 0.5)
    assert Sample.from_row(sample.numbers) == sample
    assert (sample.answered, sample.ended, sample.calls[1]) == (1, 3, 1)
    assert len(sample.calls) == SIZE_CLASSES
