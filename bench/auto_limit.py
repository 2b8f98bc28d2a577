"""A limit that adapts (`max_calls = "auto"`), against fixed ones, with a gateway that degrades above twelve calls.

    python -m bench.auto_limit

Up to its capacity the gateway answers each call after 0.1 s; with n calls, the next one takes 0.1 s × (n / capacity)².
Two supervisors with sixteen workers each have a queue that does not become empty. Then the gateway bears twice as many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psycopg

from bench.auto_limit_picture import picture
from bench.contender import ROOT, Place
from bench.contenders import Convertq
from bench.documents import lay_out
from bench.gateway import Gateway, null_gateway
from bench.postgres import DurablePostgres
from bench.report import Row, at_least, machine, table
from bench.round import place_for, working

PICTURE = ROOT / "docs" / "auto-limit.svg"
HOSTS, WORKERS = 2, 16
CAPACITY, FASTER_CAPACITY, CALL_SECONDS = 12, 24, 0.1
TOLERANCE = 3  # calls
FIXED_LIMITS = (4, 8, 12, 16, 24)
FASTER_LIMITS = (20, 24, 28)
WARM_UP_SECONDS = 8.0  # before a rate is measured
FIXED_SECONDS = float(os.environ.get("BENCH_AUTO_FIXED_SECONDS", "12"))
SETTLING_SECONDS = 15.0
AUTO_SECONDS = float(os.environ.get("BENCH_AUTO_SECONDS", "70"))  # of each part
JOBS_A_SECOND = 1.2 * FASTER_CAPACITY / CALL_SECONDS  # that a run may need
LIMIT = "SELECT max_calls FROM circuit_breaker WHERE gateway = 'bench'"


class TwoHosts(Convertq):
    def commands(self, workers: int) -> list[list[str]]:
        return Convertq.commands(self, workers) * HOSTS


@dataclass
class Course:
    """What was seen every half second, from the start on."""

    seconds: list[float] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)  # in all, until then

    def rate(self, since: float, until: float) -> float:
        inside = [at for at, second in enumerate(self.seconds) if since <= second <= until]
        first, last = inside[0], inside[-1]
        return (self.calls[last] - self.calls[first]) / (self.seconds[last] - self.seconds[first])

    def between(self, since: float, until: float) -> list[int]:
        return [limit for second, limit in zip(self.seconds, self.limits, strict=True) if since <= second <= until]

    def reached(self, limit: int, since: float) -> float:
        """After how many seconds."""
        return next(
            (second - since for second, seen in zip(self.seconds, self.limits, strict=True)
             if second >= since and seen >= limit), float("inf"),
        )  # fmt: skip


@contextmanager
def started(postgres: DurablePostgres, gateway: Gateway, limit: str, seconds: float, capacity: int) -> Iterator[Place]:
    contender = TwoHosts()
    with place_for(contender, postgres, gateway) as place:
        file = _gateways_file(place, limit)
        contender.enqueue(place, lay_out(place.uploads, int(seconds * JOBS_A_SECOND)))
        gateway.reset(delay=CALL_SECONDS, capacity=capacity)
        with working(contender, place, WORKERS, GATEWAYS_FILE=str(file)):
            gateway.wait_for(1, 60)
            yield place


def _gateways_file(place: Place, limit: str) -> Path:
    file = place.home / "gateways.toml"
    file.write_text(
        f'[gateways.bench]\nurl = "{place.gateway_url}"\nmappings = ["pt_simon_invoice_v1"]\nmax_calls = {limit}\n'
    )
    return file


def watch(place: Place, gateway: Gateway, course: Course, seconds: float) -> None:
    began = time.monotonic() - (course.seconds[-1] + 0.5 if course.seconds else 0.0)
    until = time.monotonic() + seconds
    with psycopg.connect(place.database_url, autocommit=True) as conn:
        while (now := time.monotonic()) < until:
            row = conn.execute(LIMIT.encode()).fetchone()
            course.seconds.append(now - began)
            course.limits.append(int(row[0]) if row and row[0] else 0)
            course.calls.append(gateway.count())
            time.sleep(max(0.0, 0.5 - (time.monotonic() - now)))


def fixed_rate(postgres: DurablePostgres, gateway: Gateway, limit: int, capacity: int) -> float:
    seconds = WARM_UP_SECONDS + FIXED_SECONDS
    with started(postgres, gateway, str(limit), seconds, capacity) as place:
        course = Course()
        watch(place, gateway, course, seconds)
    return course.rate(WARM_UP_SECONDS, seconds)


def adaptive_course(postgres: DurablePostgres, gateway: Gateway) -> Course:
    with started(postgres, gateway, '"auto"', 2 * AUTO_SECONDS, CAPACITY) as place:
        course = Course()
        watch(place, gateway, course, AUTO_SECONDS)
        gateway.change(delay=CALL_SECONDS, capacity=FASTER_CAPACITY)
        watch(place, gateway, course, AUTO_SECONDS)
    return course


def scene(postgres: DurablePostgres, gateway: Gateway, *, keeps: bool) -> str:
    fixed = {limit: fixed_rate(postgres, gateway, limit, CAPACITY) for limit in FIXED_LIMITS}
    faster = {limit: fixed_rate(postgres, gateway, limit, FASTER_CAPACITY) for limit in FASTER_LIMITS}
    course = adaptive_course(postgres, gateway)
    if keeps:
        where = machine(postgres.server_version())
        PICTURE.write_text(picture(course.seconds, course.limits, AUTO_SECONDS, (CAPACITY, FASTER_CAPACITY), where))
    return "\n\n".join((table(rows(course, fixed, faster)), _fixed_table(fixed, faster)))


def rows(course: Course, fixed: dict[int, float], faster: dict[int, float]) -> list[Row]:
    end = course.seconds[-1]
    settled = course.between(SETTLING_SECONDS, AUTO_SECONDS)
    again = course.between(AUTO_SECONDS + SETTLING_SECONDS, end)
    rates = course.rate(SETTLING_SECONDS, AUTO_SECONDS), course.rate(AUTO_SECONDS + SETTLING_SECONDS, end)
    return [
        _near("limit of a gateway that bears 12 calls, median", CAPACITY, settled),
        at_least(
            "throughput against the best fixed limit", 0.9, rates[0] / max(fixed.values()), "×",
            f"{rates[0]:.0f} and {max(fixed.values()):.0f} jobs/s",
        ),
        _near("limit after it bears 24 calls, median", FASTER_CAPACITY, again),
        Row("time until the limit is 21 then", "", f"{course.reached(FASTER_CAPACITY - TOLERANCE, AUTO_SECONDS):.1f} s",
            None),
        at_least(
            "throughput then against the best fixed limit", 0.9, rates[1] / max(faster.values()), "×",
            f"{rates[1]:.0f} and {max(faster.values()):.0f} jobs/s",
        ),
    ]  # fmt: skip


def _near(measure: str, capacity: int, limits: Sequence[int]) -> Row:
    middle = median(limits)
    share = sum(abs(limit - capacity) <= TOLERANCE for limit in limits) / len(limits)
    note = f"{min(limits)}–{max(limits)}, within ± {TOLERANCE} for {share:.0%} of the time"
    return Row(measure, f"{capacity} ± {TOLERANCE}", f"{middle:g} ({note})", abs(middle - capacity) <= TOLERANCE)


def _fixed_table(fixed: dict[int, float], faster: dict[int, float]) -> str:
    limits = sorted({*fixed, *faster})
    lines = [
        "| fixed limit | " + " | ".join(map(str, limits)) + " |",
        "|---|" + "---:|" * len(limits),
        f"| jobs/s, a gateway that bears {CAPACITY} calls | " + _cells(fixed, limits) + " |",
        f"| jobs/s, a gateway that bears {FASTER_CAPACITY} calls | " + _cells(faster, limits) + " |",
    ]
    return "\n".join(lines)


def _cells(rates: dict[int, float], limits: Sequence[int]) -> str:
    return " | ".join(f"{rates[limit]:.0f}" if limit in rates else "" for limit in limits)


def main() -> None:
    with DurablePostgres() as postgres, null_gateway() as gateway:
        print(scene(postgres, gateway, keeps=False))


if __name__ == "__main__":
    main()
